"""Hand-written ONNX decoder graphs for what no exporter makes, and the tokens they must give.

``python -m scripts.handmade [NAME ...]`` writes ``fixtures/handmade/<name>/``: the graph, a
``config.json`` with what the graph cannot say, and ``expected.json`` with prompts, greedy tokens
and the facts that an inspector must find. The tokens come from :mod:`.reference`, a NumPy decoder
that computes everything anew in each step; :mod:`.check` runs every graph with plain ONNX Runtime
against them before anything is written. ``fixtures/handmade/refused/`` holds graphs that cannot
be generated with, and why.

The facts in ``expected.json``:

- ``mode``: in_place, append, grow or none; ``lengths``: where GroupQueryAttention or a buffer gets
  its valid rows from (values, mask_length, past_length, positions, host), ``total``: the same of
  its total length.
- ``padding``: the side on which unequal rows may be padded (right, left, any; null for neither);
  ``ragged``: whether the mode itself takes them, which grow never does. For right in a buffer the
  mask's ones stand left in every step, pads are written over, and the position of a pad is never
  above that of its row's last token; in append they stay as holes. Both speak of the caches:
  with ``logits`` of the last column only, right-padded prompts must be run one by one.
- ``layers``, ``layer_indices``, ``heads``, ``key_size``, ``value_size``, ``windows``: the layers
  that have a cache of their own, in order; a window counts the token itself.
- ``states``: layers with a state of fixed size; ``pairs``: each cache input and the output that
  replaces it, with ``batch_axis`` and ``seq_axis`` (null for a state) in the same order;
  ``cache_dtype``; ``empty_past``: whether a past of no rows is taken.
- ``mask``: what is read of it (values, length, none; null without one); ``positions``: the rank of
  position_ids; ``capacity``: rows that the graph can position or hold, where it has such a bound.
- ``logits``: full [B, S, V], last [B, 1, V] or rank2 [B, V]; ``num_logits_to_keep``: the rank of
  that input. ``inputs``: the names of all inputs, in order.

Letters: B batch, S new tokens, P past, T = P + S, C capacity, H query heads, K key-value heads,
D head size (E of values where it differs), M hidden size, V vocabulary.
"""
