"""A binary tree of sums: draw one of n numbers with probability in proportion to it, in log n.

Leaves are the second half of the array, and node ``i`` is the sum of nodes ``2 i`` and ``2 i + 1``.
"""

from cliquewise._kernels import kernel


@kernel(inline=True)
def set_leaf(tree, i, value):
    """Change one weight of a binary sum tree (leaves in its second half)."""
    node = i + tree.shape[0] // 2
    difference = value - tree[node]
    tree[node] = value
    node //= 2
    while node >= 1:
        tree[node] += difference
        node //= 2


@kernel(helper=True)
def draw_leaf(tree, u, n):
    """Draw a leaf with probability proportional to its weight."""
    half = tree.shape[0] // 2
    rest = u * tree[1]
    node = 1
    while node < half:
        node *= 2
        if rest >= tree[node] and tree[node + 1] > 0.0:
            rest -= tree[node]
            node += 1
    return min(node - half, n - 1)


@kernel
def rebuild_tree(tree, weights):
    """Set all leaves at once."""
    half = tree.shape[0] // 2
    tree[:] = 0.0
    for i in range(weights.shape[0]):
        tree[half + i] = weights[i]
    for node in range(half - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
