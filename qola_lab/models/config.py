"""Reads a model's configuration in Hugging Face's format, and describes its layers' attention."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from qola.manifest.constants import MAX_HDIM
from qola.manifest.values import either
from qola_base.errors import ExitCode, Finding, QolaError
from qola_base.json_types import WrongValueError, parse_json

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
"""Composable Kernel's name for each data type of a configuration."""

MAX_BYTES = 16 << 20
"""Maximal size of a configuration; lists of layers that are not quantized take most of it."""

_MAX_LAYERS = 4096
_MAX_KINDS = 9
"""Most kinds of layers that an error names."""
_METHOD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_MAX_NUMBER = 2**31 - 1


class ModelError(
    QolaError, title="the model's configuration cannot be used", exit_code=ExitCode.USAGE
):
    """A model's configuration that cannot be read, or has missing or wrong values."""


@dataclass(frozen=True)
class Latent:
    """MLA's compressed K and V, which decoding attends to without expanding them.

    Attributes:
        hdim_q, hdim_v: head dimensions of that attention; it has one head of K and V.
    """

    hdim_q: int
    hdim_v: int


@dataclass(frozen=True)
class LayerAttention:
    """The causal attention of a layer.

    Attributes:
        nhead_q, nhead_k: heads of Q, and of K and V, over all GPUs.
        window: keys that a query sees, with its own; 0 for all.
        chunk: length of the chunks that the sequence is cut into, 0 for none.
        has_sink: each head has a score without a key.
        logits_soft_cap: limit of the logits, 0 for none.
        latent: MLA's attention over compressed K and V, None for other attention.
    """

    nhead_q: int
    nhead_k: int
    hdim_q: int
    hdim_v: int
    window: int = 0
    chunk: int = 0
    has_sink: bool = False
    logits_soft_cap: float = 0.0
    latent: Latent | None = None


@dataclass(frozen=True)
class LayerGroup:
    """Layers with the same attention.

    Attributes:
        layers: their indices.
        attention: None for linear attention.
    """

    layers: tuple[int, ...]
    attention: LayerAttention | None


@dataclass(frozen=True)
class Model:
    """What a configuration says of attention and experts.

    Attributes:
        file: the configuration's name, for messages.
        dtype: Composable Kernel's name.
        groups: in the order of their first layers.
        experts, experts_per_token: of MoE layers, 0 without.
        quantization: method of quantized weights, "" for none.
    """

    file: str
    model_type: str
    dtype: str
    groups: tuple[LayerGroup, ...]
    experts: int = 0
    experts_per_token: int = 0
    quantization: str = ""


def parse_model(text: str | bytes, file: str) -> Model:
    """Return the model of a configuration's text.

    Configurations with a `text_config`, as of models for images and text, are those of it.

    Raises:
        ModelError: with every missing or wrong value.
    """
    try:
        values = parse_json(text)
    except WrongValueError as error:
        raise ModelError(Finding(file, str(error), "a config.json of Hugging Face")) from None
    if not isinstance(values, dict):
        raise ModelError(Finding(file, _shown(values), "a JSON object"))
    inner = values.get("text_config")
    if inner is None:
        return _Keys(file, "", values, values).model()
    if not isinstance(inner, dict):
        found, expected = _shown(inner), "an object with the keys of the language model"
        raise ModelError(Finding(f"{file} text_config", found, expected))
    return _Keys(file, "text_config.", inner, values).model()


def _shown(value: object) -> str:
    return json.dumps(value)[:80]


@dataclass(frozen=True)
class _ModelType:
    """How the models of a type differ from others.

    Attributes:
        kinds: kinds of the layers if `layer_types` is left out.
        has_sink: its attention has sinks, which no key says.
        is_latent: its attention is MLA.
    """

    kinds: Callable[[_Keys, int], Iterable[str]]
    has_sink: bool = False
    is_latent: bool = False


FULL, SLIDING = "full_attention", "sliding_attention"
CHUNKED, LINEAR = "chunked_attention", "linear_attention"
_KINDS = (FULL, SLIDING, CHUNKED, LINEAR)


class _Keys:
    """The keys of a configuration; collects a finding for each wrong one."""

    def __init__(
        self, file: str, prefix: str, values: Mapping[str, Any], outer: Mapping[str, Any]
    ) -> None:
        """Read `values`, which are in `outer` under the key `prefix`."""
        self._file, self._prefix, self._values, self._outer = file, prefix, values, outer
        self._wrong: list[Finding] = []

    def model(self) -> Model:
        """Return the model, or raise ModelError."""
        model_type = self._model_type()
        dtype = self._dtype()
        count = self.whole("num_hidden_layers", most=_MAX_LAYERS)
        known = MODEL_TYPES.get(model_type)
        kinds = self._kinds(known, count) if known and count else ()
        base = self._attention(known) if known else None
        experts = self._experts()
        groups = self._groups(kinds, base) if base else ()
        quantization = self._quantization()
        if self._wrong:
            raise ModelError(self._wrong)
        own = (self._file, model_type, dtype, groups, *experts)
        return Model(*own, quantization=quantization)

    def find(self, key: str) -> Any:
        """Return a key's value, None if it is null or left out."""
        return self._values.get(key)

    def add(self, key: str, found: object, expected: str, fix: str = "") -> None:
        """Collect a finding about a key."""
        text = "left out" if found is None else _shown(found)
        self._wrong.append(Finding(f"{self._file} {self._prefix}{key}", text, expected, fix))

    def whole(
        self, key: str, default: int | None = None, most: int = _MAX_NUMBER, least: int = 1
    ) -> int:
        """Return a whole number in a range; 0 if it is wrong."""
        value = self.find(key)
        if value is None and default is not None:
            return default
        if type(value) is int and least <= value <= most:
            return value
        above = f"a whole number above {least - 1}" if least else "a whole number of at least 0"
        self.add(key, value, f"a whole number, {least} to {most}" if most != _MAX_NUMBER else above)
        return 0

    def _model_type(self) -> str:
        value = self.find("model_type")
        if not isinstance(value, str) or value not in MODEL_TYPES:
            # No guess by spelling: gemma4_text has other head dimensions than gemma3_text.
            more = "for another model, the type of one with the same attention"
            self.add("model_type", value, f"{either(MODEL_TYPES)}; {more}")
            return ""
        for key, meaning in _OTHER_ATTENTION.items():
            if self.find(key):
                expected = f"no such key: it means {meaning}, which this reader does not know"
                self.add(key, self.find(key), expected)
        return value

    def _dtype(self) -> str:
        names = ("torch_dtype", "dtype")
        found = [(n, v[n]) for v in (self._values, self._outer) for n in names if v.get(n)]
        name, value = found[0] if found else (names[0], None)
        if isinstance(value, str) and value in DTYPES:
            return DTYPES[value]
        self.add(name, value, f"{either(DTYPES)}, the type that attention computes in")
        return ""

    def _quantization(self) -> str:
        values = self._outer.get("quantization_config") or self.find("quantization_config")
        method = values.get("quant_method") if isinstance(values, dict) else None
        if method is None or (isinstance(method, str) and _METHOD.fullmatch(method)):
            return method or ""
        self.add("quantization_config.quant_method", method, "a name, such as fp8 or awq")
        return ""

    def _experts(self) -> tuple[int, int]:
        names = ("num_local_experts", "n_routed_experts", "num_experts")
        name = next((name for name in names if self.find(name)), "")
        if not name:
            return 0, 0
        return self.whole(name), self.whole("num_experts_per_tok")

    def _kinds(self, known: _ModelType, count: int) -> tuple[str, ...]:
        """Return the kind of each layer."""
        given = self.find("layer_types")
        if given is None:
            return tuple(known.kinds(self, count))
        if not isinstance(given, list) or len(given) != count:
            found = len(given) if isinstance(given, list) else given
            self.add("layer_types", found, f"a list of {count} kinds, as num_hidden_layers says")
            return ()
        wrong: dict[str, list[int]] = {}
        for place, kind in enumerate(given):
            if kind not in _KINDS:
                wrong.setdefault(_shown(kind), []).append(place)
        for places in [*wrong.values()][:_MAX_KINDS]:
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            self.add(f"layer_types[{places[0]}]{more}", given[places[0]], either(_KINDS))
        if (others := len(wrong) - _MAX_KINDS) > 0:
            self.add("layer_types", f"{others} more wrong values", either(_KINDS))
        return () if wrong else tuple(given)

    def _attention(self, known: _ModelType) -> LayerAttention:
        """Return the attention of a layer without a window."""
        nhead_q = self.whole("num_attention_heads")
        cap = self.find("attn_logit_softcapping")
        if cap is not None and (type(cap) not in (int, float) or not 0 <= cap < _MAX_NUMBER):
            self.add("attn_logit_softcapping", cap, "a number of at least 0, or null")
            cap = None
        more: dict[str, Any] = {"has_sink": known.has_sink, "logits_soft_cap": float(cap or 0)}
        if known.is_latent:
            rank, nope, rope, hdim_v = map(self.whole, _LATENT_KEYS)
            latent = Latent(rank + rope, rank)
            return LayerAttention(nhead_q, nhead_q, nope + rope, hdim_v, latent=latent, **more)
        nhead_k = self.whole("num_key_value_heads", nhead_q)
        if nhead_q and nhead_k and nhead_q % nhead_k:
            self.add("num_key_value_heads", nhead_k, f"a number that divides {nhead_q}")
        hdim = self._hdim(nhead_q)
        return LayerAttention(nhead_q, nhead_k, hdim, hdim, **more)

    def _hdim(self, nhead_q: int) -> int:
        if self.find("head_dim") is not None:
            return self.whole("head_dim", most=MAX_HDIM)
        hidden = self.find("hidden_size")
        if type(hidden) is int and nhead_q and hidden > 0 and not hidden % nhead_q:
            if hidden // nhead_q <= MAX_HDIM:
                return hidden // nhead_q
            expected = f"at most {MAX_HDIM} for each of {nhead_q} heads, or the key head_dim"
            self.add("hidden_size", hidden, expected)
            return 0
        if hidden is None:
            self.add("head_dim", None, f"a whole number, 1 to {MAX_HDIM}, or hidden_size")
        elif nhead_q:
            expected = f"a multiple of num_attention_heads, {nhead_q}, or the key head_dim"
            self.add("hidden_size", hidden, expected)
        return 0

    def _groups(self, kinds: tuple[str, ...], base: LayerAttention) -> tuple[LayerGroup, ...]:
        window = self.whole("sliding_window") if SLIDING in kinds else 0
        chunk = self.whole("attention_chunk_size") if CHUNKED in kinds else 0
        of_kind: dict[str, LayerAttention | None] = {LINEAR: None}
        for kind in (FULL, SLIDING, CHUNKED):
            size = {"window": window * (kind == SLIDING), "chunk": chunk * (kind == CHUNKED)}
            of_kind[kind] = LayerAttention(**{**vars(base), **size})
        layers: dict[LayerAttention | None, list[int]] = {}
        for layer, kind in enumerate(kinds):
            layers.setdefault(of_kind.get(kind), []).append(layer)
        return tuple(LayerGroup(tuple(found), attention) for attention, found in layers.items())


_LATENT_KEYS = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _full(keys: _Keys, count: int) -> Iterable[str]:
    return [FULL] * count


def _window_everywhere(keys: _Keys, count: int) -> Iterable[str]:
    """All layers have the window, if there is one: Mistral, Mixtral, Phi-3."""
    return [FULL if keys.find("sliding_window") is None else SLIDING] * count


def _window_above(keys: _Keys, count: int) -> Iterable[str]:
    """Layers from max_window_layers on have the window, if use_sliding_window is set: Qwen."""
    if not keys.find("use_sliding_window") or keys.find("sliding_window") is None:
        return [FULL] * count
    first = keys.whole("max_window_layers", least=0)
    return [FULL if layer < first else SLIDING for layer in range(count)]


def _every(pattern_key: str, default: int, kind: str) -> Callable[[_Keys, int], Iterable[str]]:
    """Return the rule that every n-th layer has full attention, and others have `kind`."""

    def kinds(keys: _Keys, count: int) -> Iterable[str]:
        period = keys.whole(pattern_key, default)
        return [kind if (layer + 1) % max(period, 1) else FULL for layer in range(count)]

    return kinds


def _no_rope_layers(keys: _Keys, count: int) -> Iterable[str]:
    """Layers with positions are chunked, and those with a 0 in the list are full: Llama 4."""
    given = keys.find("no_rope_layers")
    if not given:
        return _every("no_rope_layer_interval", 4, CHUNKED)(keys, count)
    if (
        not isinstance(given, list)
        or len(given) != count
        or any(one not in (0, 1) for one in given)
    ):
        keys.add("no_rope_layers", given, f"a list of {count} numbers, 0 or 1")
        return ()
    return [CHUNKED if has_positions else FULL for has_positions in given]


_OTHER_ATTENTION = {
    "attention_k_eq_v": "values that are the keys",
    "attn_layer_indices": "layers without attention",
    "attn_type_list": "a kind of attention for each layer",
    "global_head_dim": "another head dimension in layers with full attention",
    "hybrid_override_pattern": "layers without attention",
    "index_topk": "sparse attention, to the keys that an indexer selects",
    "layers_block_type": "layers without attention",
    "linear_attn_config": "linear attention in some layers",
    "num_global_key_value_heads": "other heads of K and V in layers with full attention",
}
"""Keys of published configurations that change attention, for models like those of MODEL_TYPES."""

_PLAIN = _ModelType(_full)
_MLA = _ModelType(_full, is_latent=True)
MODEL_TYPES: Mapping[str, _ModelType] = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _MLA),
    "gemma": _PLAIN,
    "gemma2": _ModelType(_every("sliding_window_pattern", 2, SLIDING)),
    "gemma3_text": _ModelType(_every("sliding_window_pattern", 6, SLIDING)),
    "glm4_moe": _PLAIN,
    "gpt_oss": _ModelType(_every("sliding_window_pattern", 2, SLIDING), has_sink=True),
    "granite": _PLAIN,
    "llama": _PLAIN,
    "llama4_text": _ModelType(_no_rope_layers),
    **dict.fromkeys(("mistral", "mixtral"), _ModelType(_window_everywhere)),
    "olmo2": _PLAIN,
    "phi3": _ModelType(_window_everywhere),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), _ModelType(_window_above)),
    "qwen3_next": _ModelType(_every("full_attention_interval", 4, LINEAR)),
}
"""The model types whose attention is known, by the name in `model_type`."""


def model_lines(model: Model) -> Iterator[str]:
    """Yield lines about a model's type, weights and experts."""
    count = sum(len(group.layers) for group in model.groups)
    yield f"{model.file}: {model.model_type}, {count} layers, {model.dtype}"
    if model.quantization:
        yield f"  weights are quantized ({model.quantization}); attention computes in {model.dtype}"
    if model.experts:
        each = f"{model.experts} experts, {model.experts_per_token} for each token"
        yield f"  MoE with {each}: not attention; AITER's modules for Python have it"


def layers_line(group: LayerGroup) -> str:
    """Return a line about layers and their attention."""
    number = len(group.layers)
    shown = _ranges(group.layers)
    attention = group.attention
    text = "linear attention" if attention is None else _describe(attention)
    return f"layer{'s' if number > 1 else ''} {shown} ({number}): {text}"


def _describe(attention: LayerAttention) -> str:
    heads = f"{attention.nhead_q} heads, {attention.nhead_k} of K and V"
    hdims = dict.fromkeys((attention.hdim_q, attention.hdim_v))
    words = [heads, f"head dimension {'x'.join(map(str, hdims))}", "causal"]
    if attention.window:
        words.append(f"window of {attention.window} keys")
    if attention.chunk:
        words.append(f"in chunks of {attention.chunk}, each passed as a sequence")
    if attention.logits_soft_cap:
        words.append(f"soft cap {attention.logits_soft_cap:g}")
    if attention.has_sink:
        words.append("sinks")
    if attention.latent:
        latent = attention.latent
        words.append(f"MLA, compressed to {latent.hdim_q}x{latent.hdim_v}")
    return ", ".join(words)


def _ranges(layers: tuple[int, ...]) -> str:
    """Format indices: 0-31, or 0, 2, ... 40 for a regular distance."""
    steps = {after - before for before, after in pairwise(layers)}
    if len(layers) == 1:
        return str(layers[0])
    if steps == {1}:
        return f"{layers[0]}-{layers[-1]}"
    few = ", ".join(map(str, layers[:8]))
    return few if len(layers) <= 8 else f"{few}, ... {layers[-1]}"
