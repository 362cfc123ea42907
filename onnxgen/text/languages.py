"""The languages of a translation model, and where their tokens go.

A model of many languages learns its source from a token beside the text, and its target from the
token that its decoder is made to begin with. The class of the tokenizer says where they stand.
transformers keeps the chosen source in the tokenizer; here each call names its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from onnxgen.errors import OptionError

# Where the target's token goes: behind the decoder's start (forced_bos_token_id), in its place
# (decoder_start_token_id), or before the text of the source.
Place = Literal["forced", "start", "source"]

_SHOWN = 8  # languages in a message
_PLAIN_CODE = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True)
class LanguageRule:
    """How the tokenizers of one class write languages.

    Attributes:
        codes: the class's own languages; their tokens are special wherever the vocabulary has them.
        default: the source where neither the caller nor the configuration names one.
        marks: what a token has before and behind its code.
        last: the source's token stands behind the end token, else before the text.
        legacy: ``legacy_behaviour`` of the configuration says what ``last`` is.
        target: where the target's token goes.
    """

    codes: tuple[str, ...] = ()
    default: str | None = None
    marks: tuple[str, str] = ("", "")
    last: bool = False
    legacy: bool = False
    target: Place = "forced"

    def token(self, code: str) -> str:
        """The token of a language."""
        return code.join(self.marks)

    def code(self, token: str) -> str | None:
        """The language of a token, None if it is none."""
        before, after = self.marks
        if not before:
            return token if _PLAIN_CODE.fullmatch(token) else None
        code = token[len(before) : -len(after)]
        return code if code and token == self.token(code) else None


class Languages:
    """The languages of one model; a name is a code or its token, in upper or lower case.

    Attributes:
        codes: all of them, in the order of their ids.
        default_source: the source where a call names none; None if each call has to.
        target_place: where :meth:`target` goes.
    """

    def __init__(
        self, rule: LanguageRule, tokens: Mapping[str, int], end: int, config: Mapping[str, Any]
    ) -> None:
        """Takes the ids of ``tokens``, of which some name languages, and of the ``end`` token."""
        coded = [(i, rule.code(token)) for token, i in tokens.items()]
        self._ids = {code: i for i, code in sorted(coded, key=lambda pair: pair[0]) if code}
        self._names: dict[str, list[str]] = {}  # folded name -> codes
        for code in self._ids:
            for name in {code, rule.token(code)}:
                self._names.setdefault(name.casefold(), []).append(code)
        self._rule, self._end = rule, end
        self._last = bool(config.get("legacy_behaviour")) if rule.legacy else rule.last
        self.codes = tuple(self._ids)
        self.target_place = rule.target
        default = config.get("src_lang")
        called = self._called(rule.default if default is None else default)
        self.default_source = called[0] if len(called) == 1 else None

    def source(
        self, src_lang: str | None = None, tgt_lang: str | None = None
    ) -> tuple[list[int], list[int]]:
        """The ids before and behind a text in ``src_lang``.

        ``tgt_lang`` is among them only where ``target_place`` is "source"; there the text itself
        may name its target instead.

        Raises:
            OptionError: a language is unknown; none is given and there is no default; one is given
                to a model that is not told its source.
        """
        target = [] if tgt_lang is None else [self.target(tgt_lang)]
        if self.target_place == "source":
            if src_lang is not None:
                raise OptionError("src_lang for a model that is not told it", do="leave it out")
            return target, [self._end]
        name = self.default_source if src_lang is None else src_lang
        if name is None:
            raise OptionError(
                "no src_lang was given, and the model names none",
                wanted=f"one of {_some(self.codes)}",
            )
        source = self._id(name)
        return ([], [self._end, source]) if self._last else ([source], [self._end])

    def target(self, tgt_lang: str) -> int:
        """The id of the target's token, which goes where ``target_place`` says.

        Raises:
            OptionError: the language is unknown.
        """
        return self._id(tgt_lang)

    def _id(self, name: str) -> int:
        called = self._called(name)
        if len(called) == 1:
            return self._ids[called[0]]
        if called:
            raise OptionError(
                f"{name!r} is the name of several languages", wanted=f"one of {_some(called)}"
            )
        raise OptionError(
            f"the model has no language {name!r}", wanted=f"one of {_some(self.codes, str(name))}"
        )

    def _called(self, name: Any) -> list[str]:
        """The languages that a name may stand for; one, if it is spelled exactly."""
        alike = self._names.get(str(name).casefold(), [])
        return [code for code in alike if name in (code, self._rule.token(code))] or alike


def _some(codes: Iterable[str], name: str = "") -> str:
    """A few of ``codes`` for a message, the nearest to ``name`` first."""
    wanted = name.casefold()

    def distance(code: str) -> tuple[bool, float]:
        folded = code.casefold()
        return not folded.startswith(wanted), -SequenceMatcher(None, wanted, folded).ratio()

    near = sorted(codes, key=distance)
    more = f", … ({len(near)} in all)" if len(near) > _SHOWN else ""
    return ", ".join(near[:_SHOWN]) + more


_MBART_CODES = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV
my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART50_CODES = """
af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX
sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
_M2M100_CODES = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he
hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl
no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi
yo zh zu
"""
_NLLB_CODES = """
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn als_Latn amh_Ethi apc_Arab
arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl
bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn
bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn dik_Latn
dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn fij_Latn fin_Latn
fon_Latn fra_Latn fur_Latn fuv_Latn gaz_Latn gla_Latn gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn
hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn
ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor kaz_Cyrl
kbp_Latn kea_Latn khk_Cyrl khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kmr_Latn knc_Arab knc_Latn
kon_Latn kor_Hang lao_Laoo lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn
lug_Latn luo_Latn lus_Latn lvs_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl mlt_Latn
mni_Beng mos_Latn mri_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn nus_Latn nya_Latn
oci_Latn ory_Orya pag_Latn pan_Guru pap_Latn pbt_Arab pes_Arab plt_Latn pol_Latn por_Latn prs_Arab
quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn
slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn spa_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn
swe_Latn swh_Latn szl_Latn tam_Taml taq_Latn taq_Tfng tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai
tir_Ethi tpi_Latn tsn_Latn tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl
umb_Latn urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant
zho_Hans zho_Hant zsm_Latn zul_Latn
"""

MBART = LanguageRule(tuple(_MBART_CODES.split()), "en_XX", last=True, target="start")
MBART50 = LanguageRule((*MBART.codes, *_MBART50_CODES.split()), "en_XX")
M2M100 = LanguageRule(tuple(_M2M100_CODES.split()), "en", ("__", "__"))
NLLB = LanguageRule(tuple(_NLLB_CODES.split()), "eng_Latn", legacy=True)
SEAMLESS = LanguageRule(default="eng", marks=("__", "__"))
MARIAN = LanguageRule(marks=(">>", "<<"), target="source")
