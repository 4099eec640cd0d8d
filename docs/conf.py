"""How Sphinx builds the site; `python -m docs` is the command. Imports nothing of Sphinx."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
METADATA = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "cliquewise"
author = METADATA["authors"][0]["name"]
copyright = author
version = release = METADATA["version"]
html_baseurl = METADATA["urls"]["Documentation"]

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
nitpicky = True
# Sphinx's cache cannot hold a function of these settings; nothing on a page depends on it.
suppress_warnings = ["config.cache"]
exclude_patterns = ["_build", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]

# ---- pages

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---- figures in the pages

plot_html_show_formats = False
plot_html_show_source_link = False
plot_formats = [("png", 150)]
plot_rcparams = {"figure.figsize": (5.5, 3.2), "figure.constrained_layout.use": True}
plot_apply_rcparams = True

# ---- the reference

autosummary_generate = True
# Stubs and mocks are for extras that are not installed: their docstrings are read all the same.
EXTRAS = ("torch", "triton", "dask", "distributed", "spacy")
autodoc_mock_imports = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
#: Packages whose members are theirs to document.
OTHERS = ("sklearn", "torch", "builtins", "collections")
REQUEST = re.compile(r"set_\w+_request")

# ---- the gallery

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": "__init__",
    "subsection_order": [
        f"../examples/{part}" for part in ("sequences", "graphs", "sets", "deep", "proofs")
    ],
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 60,
    "write_computation_times": False,  # their pages load scripts from a network
    "download_all_examples": False,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("cliquewise",),
    "abort_on_example_error": False,
    "image_srcset": ["2x"],
    "capture_repr": ("_repr_html_", "__repr__"),
    "plot_gallery": True,
}

# ---- what it looks like; everything is served from the site itself

html_theme = "pydata_sphinx_theme"
html_title = "cliquewise"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": [], "api/generated/*": []}
html_theme_options = {
    "logo": {"text": "cliquewise"},
    "collapse_navigation": True,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}


def skip(app: Any, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what other packages have added to our classes."""
    home = getattr(thing, "__module__", None) or getattr(
        getattr(thing, "__objclass__", None), "__module__", ""
    )
    if REQUEST.fullmatch(name) or str(home).split(".")[0] in OTHERS:
        return True
    return None


def setup(app: Any) -> None:
    """Sphinx calls this."""
    app.connect("autodoc-skip-member", skip)
