"""TokenClassifier: a chain of labels on top of a subword encoder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cliquewise.errors import DataError, FormatError, UnsupportedError
from cliquewise.torch._scores import IGNORED, check_tensor, mask_ignored
from cliquewise.torch._tags import label_names
from cliquewise.torch._transforms import is_exporting
from cliquewise.torch.crf import ChainCRF

#: Files of `TokenClassifier.save_pretrained`.
_WEIGHTS, _SETTINGS, _ENCODER = "model.safetensors", "token_classifier.json", "encoder"


class TokenOutput(dict[str, Any]):
    """Result of `TokenClassifier`: a dict with access by attribute and by index as well.

    Examples
    --------
    >>> output = TokenOutput(loss=1.0, logits=2.0)
    >>> output["loss"], output.logits, output[1:]
    (1.0, 2.0, (2.0,))
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getitem__(name)
        except KeyError:
            raise AttributeError(f"no attribute {name!r}, only {', '.join(self)}") from None

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


def first_pieces(word_ids: Iterable[int | None]) -> list[bool]:
    """Return which pieces start a word, given the word number of every piece.

    Parameters
    ----------
    word_ids : iterable of int or None
        ``word_ids()`` of a fast tokenizer: None for special tokens and padding.

    Examples
    --------
    >>> first_pieces([None, 0, 0, 1, 2, 2, None])
    [False, True, False, True, True, False, False]
    """
    found, before = [], None
    for word in word_ids:
        found.append(word is not None and word != before)
        before = word
    return found


class TokenClassifier(nn.Module):
    """Token classifier: an encoder, a linear layer and a chain (`ChainCRF`).

    Replaces a ``...ForTokenClassification`` model of transformers, also in its ``Trainer``. There
    is one label per word: other positions (special tokens, padding, later pieces of a word) have
    the label -100, and the chain connects words.

    Parameters
    ----------
    encoder : nn.Module
        Called as ``encoder(input_ids=..., attention_mask=..., **others)``; returns the states
        (B, T, H), or an object with ``last_hidden_state``, a mapping with it, or a tuple that they
        are the first entry of.
    labels : int, sequence of str, or mapping from int to str
        Number of labels, or their names.
    scheme : {"BIO", "BIOES", "IO"}, optional
        As in :meth:`ChainCRF.from_scheme`; needs names.
    hidden_size : int, optional
        H; by default ``encoder.config.hidden_size``.
    dropout : float, default=0.1
        Dropout rate for the states of the encoder.
    label_smoothing : float, default=0.0
        How much of the labels is replaced by uniform ones in the training loss. (The option
        ``label_smoothing_factor`` of ``Trainer`` ignores the chain, and is refused.)

    Examples
    --------
    >>> import torch
    >>> from cliquewise.torch import TokenClassifier
    >>> class Encoder(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embedding = torch.nn.Embedding(100, 8)
    ...     def forward(self, input_ids, attention_mask=None):
    ...         return (self.embedding(input_ids),)
    >>> model = TokenClassifier(Encoder(), ["O", "B-PER", "I-PER"], "BIO", hidden_size=8)
    >>> ids = torch.tensor([[1, 7, 8, 9, 2]])
    >>> labels = torch.tensor([[-100, 1, -100, 2, -100]])
    >>> model(ids, torch.ones_like(ids), labels).loss.backward()
    >>> model.eval()(ids, torch.ones_like(ids), labels).predictions.eq(-100).tolist()
    [[True, False, True, False, True]]
    """

    def __init__(
        self,
        encoder: nn.Module,
        labels: int | Sequence[str] | Mapping[int, str],
        scheme: str | None = None,
        *,
        hidden_size: int | None = None,
        dropout: float = 0.1,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if hidden_size is None:
            config = getattr(encoder, "config", None)
            hidden_size = getattr(config, "hidden_size", None)
            if hidden_size is None:
                raise DataError("the encoder has no config.hidden_size: pass hidden_size=")
        if isinstance(labels, int):
            if scheme is not None:
                raise DataError(
                    f"scheme {scheme!r} needs the names of the labels, not their number"
                )
            self.labels = [str(tag) for tag in range(labels)]
        else:
            self.labels = label_names(labels)
        self.scheme, self.label_smoothing = scheme, label_smoothing
        self.encoder, self.dropout = encoder, nn.Dropout(dropout)
        self.classifier = nn.Linear(hidden_size, len(self.labels))
        if scheme is None:
            self.crf = ChainCRF(len(self.labels), batch_first=True)
        else:
            self.crf = ChainCRF.from_scheme(scheme, self.labels, batch_first=True)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        word_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **others: Any,
    ) -> TokenOutput:
        """Compute the loss, label scores, and in evaluation mode the best labels.

        Parameters
        ----------
        input_ids, attention_mask : Tensor of shape (B, T), optional
            For the encoder, like ``others``.
        labels : integer Tensor of shape (B, T), optional
            -100 at positions without a label.
        word_mask : Tensor of shape (B, T), optional
            True at positions with a label, the first pieces of words (`first_pieces`). By
            default those whose label is not -100; without labels, all attended positions.
        num_items_in_batch : int or Tensor, optional
            Divisor of the summed loss, passed by ``Trainer`` when it accumulates gradients over
            several batches; by default the number of labels.

        Returns
        -------
        TokenOutput
            ``loss`` (with labels): negative log-likelihood per label; ``logits`` (B, T, K): the
            emission scores of the chain; ``predictions`` (B, T, in evaluation mode): -100 at
            positions without a label.
        """
        if self.training and labels is None and word_mask is None:
            raise DataError(
                "labels are missing in training mode. The options label_smoothing_factor and "
                "compute_loss_func of Trainer remove them, and their losses ignore the chain: use "
                "TokenClassifier(..., label_smoothing=...). For scores only, pass word_mask or "
                "call model.eval()"
            )
        emissions, mask = self._score(input_ids, attention_mask, labels, word_mask, others)
        output = TokenOutput()
        if labels is not None:
            smoothing = self.label_smoothing if self.training else 0.0
            total = self.crf(emissions, labels, mask, label_smoothing=smoothing)
            count = num_items_in_batch
            if count is None:
                count = labels.numel() if mask is None else mask.sum().clamp(min=1)
            output["loss"] = -total / count
        output["logits"] = emissions
        if not self.training:
            output["predictions"] = self.crf.predict(emissions, mask)
        # A custom type would have to be registered where an exported model runs.
        return dict(output) if is_exporting() else output  # type: ignore[return-value]

    def _score(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        labels: Tensor | None,
        word_mask: Tensor | None,
        others: dict[str, Any],
    ) -> tuple[Tensor, Tensor | None]:
        """Return the emissions and the mask of positions with a label."""
        if input_ids is not None:
            others["input_ids"] = input_ids
        if attention_mask is not None:
            others["attention_mask"] = attention_mask
        states = _states(self.encoder(**others))
        if states.shape[-1] != self.classifier.in_features:
            raise DataError(
                f"the states of the encoder have size {states.shape[-1]}, but hidden_size is "
                f"{self.classifier.in_features}: pass hidden_size={states.shape[-1]}"
            )
        emissions = self.classifier(self.dropout(states))
        for name, value in (("labels", labels), ("word_mask", word_mask)):
            if value is not None:
                _check_rows(name, value, emissions)
        mask = attention_mask if word_mask is None else word_mask.bool()
        if mask is not None and mask is not attention_mask and attention_mask is not None:
            mask = mask & attention_mask.bool()
        if labels is not None:
            mask = mask_ignored(labels, mask)
        return emissions, mask

    @torch.no_grad()
    def predict_spans(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        word_mask: Tensor | None = None,
        proba: bool = False,
        candidates: str = "best",
        threshold: float | None = None,
        k: int | None = None,
        **others: Any,
    ) -> list[list[Any]]:
        """Find the spans (entities, chunks) of every row, in evaluation mode.

        Parameters
        ----------
        input_ids, attention_mask, labels, word_mask, **others
            As in :meth:`forward`; ``labels`` only select positions, those that are not -100.
        proba, candidates, threshold, k
            As in :meth:`ChainCRF.predict_spans`.

        Returns
        -------
        list of lists of (start, end, type) or (start, end, type, probability)
            Positions count pieces: ``start`` is the first piece of the first word, ``end`` is one
            past the *first* piece of the last word. In words these are ``word_ids[start]`` and
            ``word_ids[end - 1] + 1``.

        Examples
        --------
        >>> import torch
        >>> from cliquewise.torch import TokenClassifier
        >>> model = TokenClassifier(torch.nn.Identity(), ["O", "B-X", "I-X"], hidden_size=2).eval()
        >>> model.encoder.forward = lambda input_ids: torch.zeros(*input_ids.shape, 2)
        >>> found = model.predict_spans(torch.zeros(1, 3), candidates="all", threshold=0.0)
        >>> [(s.start, s.end) for s in found[0]]
        [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        """
        if self.training:
            raise DataError(
                "the model is in training mode, where dropout makes results random: call "
                "model.eval() first"
            )
        if self.labels == [str(tag) for tag in range(len(self.labels))]:
            raise DataError(
                "predict_spans needs the names of the labels: create the model with "
                'TokenClassifier(encoder, ["O", "B-PER", ...])'
            )
        emissions, mask = self._score(input_ids, attention_mask, labels, word_mask, others)
        return self.crf.predict_spans(
            emissions, mask, labels=self.labels, proba=proba, candidates=candidates,
            threshold=threshold, k=k,
        )  # fmt: skip

    # ---- Hugging Face

    @property
    def is_gradient_checkpointing(self) -> bool:
        """Whether the encoder recomputes activations to save memory."""
        return bool(getattr(self.encoder, "is_gradient_checkpointing", False))

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Let the encoder recompute activations to save memory; ``Trainer`` calls this."""
        self._encoder_method("gradient_checkpointing_enable")(**options)

    def gradient_checkpointing_disable(self) -> None:
        """Undo `gradient_checkpointing_enable`."""
        self._encoder_method("gradient_checkpointing_disable")()

    def _encoder_method(self, name: str) -> Callable[..., None]:
        method = getattr(self.encoder, name, None)
        if method is None:
            raise UnsupportedError(
                f"the encoder {type(self.encoder).__name__} has no {name}; models of transformers "
                "have it"
            )
        return method  # type: ignore[no-any-return]

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write weights (safetensors) and settings (JSON) to a folder.

        Parameters
        ----------
        folder : path
        **options
            Ignored; for callers that pass the options of transformers.
        """
        from safetensors.torch import save_file

        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        config = getattr(self.encoder, "config", None)
        if config is not None and hasattr(config, "save_pretrained"):
            config.save_pretrained(target / _ENCODER)
        settings = {
            "format": 1, "labels": self.labels, "scheme": self.scheme,
            "hidden_size": self.classifier.in_features, "dropout": self.dropout.p,
            "label_smoothing": self.label_smoothing,
        }  # fmt: skip
        state = {name: x.detach().contiguous().cpu() for name, x in self.state_dict().items()}
        # A copy each: safetensors refuses tensors that share memory.
        save_file({name: x.clone() for name, x in state.items()}, target / _WEIGHTS)
        (target / _SETTINGS).write_text(json.dumps(settings, indent=2), encoding="utf-8")

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, encoder: nn.Module | None = None
    ) -> TokenClassifier:
        """Load a model that `save_pretrained` wrote.

        Parameters
        ----------
        folder : path
        encoder : nn.Module, optional
            The encoder, whose weights are replaced. By default a model of transformers is created
            from its saved configuration.

        Examples
        --------
        >>> import tempfile, torch
        >>> from cliquewise.torch import TokenClassifier
        >>> encoder = torch.nn.Embedding(9, 4)
        >>> model = TokenClassifier(encoder, ["O", "B-X", "I-X"], "BIO", hidden_size=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     same = TokenClassifier.from_pretrained(folder, torch.nn.Embedding(9, 4))
        >>> same.labels, torch.equal(same.encoder.weight, encoder.weight)
        (['O', 'B-X', 'I-X'], True)
        """
        from safetensors.torch import load_file

        source = Path(folder)
        if not (source / _SETTINGS).is_file():
            raise FormatError(f"has no {_SETTINGS}; write it with save_pretrained", source)
        settings = json.loads((source / _SETTINGS).read_text(encoding="utf-8"))
        if settings.pop("format", None) != 1:
            raise FormatError("was written by a newer version", source / _SETTINGS)
        if encoder is None:
            if not (source / _ENCODER).is_dir():
                raise DataError(f"{source} has no configuration of an encoder: pass encoder=...")
            from transformers import AutoConfig, AutoModel

            encoder = AutoModel.from_config(AutoConfig.from_pretrained(source / _ENCODER))
        model = cls(
            encoder, settings["labels"], settings["scheme"], hidden_size=settings["hidden_size"],
            dropout=settings["dropout"], label_smoothing=settings["label_smoothing"],
        )  # fmt: skip
        state = load_file(source / _WEIGHTS)
        for name, child in list(encoder.named_children()):
            # An optional part, such as the pooler of BERT, that the saved encoder did not have.
            if any(True for _ in child.parameters()) and not any(
                key.startswith(f"encoder.{name}.") for key in state
            ):
                setattr(encoder, name, None)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise FormatError(f"the weights do not match the encoder: {error}", source) from error
        return model.eval()

    def names(self, predictions: Tensor) -> list[list[str]]:
        """Return labels (B, T) as names, without those of -100."""
        rows = torch.as_tensor(predictions).tolist()
        return [[self.labels[tag] for tag in row if tag != IGNORED] for row in rows]


def _check_rows(name: str, value: Any, emissions: Tensor) -> None:
    """Raise unless there is one entry per piece."""
    check_tensor(name, value)
    if value.shape != emissions.shape[:2]:
        raise DataError(
            f"{name} must have shape {tuple(emissions.shape[:2])}, one entry per piece, not "
            f"{tuple(value.shape)}: labels of words go to their first pieces (first_pieces), with "
            f"{IGNORED} elsewhere"
        )


def _states(output: Any) -> Tensor:
    """Return the last hidden states from the output of an encoder."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping) and "last_hidden_state" not in output:
        raise DataError(
            f"the encoder returned {', '.join(map(str, output))} without last_hidden_state: use "
            "the model without its head (AutoModel)"
        )
    if isinstance(output, Mapping):
        return output["last_hidden_state"]
    states = getattr(output, "last_hidden_state", None)
    if states is None and isinstance(output, (tuple, list)):
        states = output[0]
    if not isinstance(states, Tensor):
        raise DataError(
            f"the encoder returned {type(output).__name__}; it must return a tensor, a tuple "
            "that starts with one, or an object with last_hidden_state"
        )
    return states
