"""What each word or phrase of arithmetic in English, Chinese, Japanese and Korean means to the grammar.

A meaning is the kind of token the grammar works with and, after a space, its text.
"""

from __future__ import annotations

import re

_ENGLISH = {
    "op +": "plus, added to",
    "op -": "minus, take away, less",
    "op *": "times, multiplied by, multiply by, multiplied with",
    "op /": "divided by, divide by, over",
    "op mod": "modulo, mod, modulus",
    "op ^": "to the power of, to the power, raised to the power of, raised to the power, raised to",
    "percent %": "percent, per cent, pct",
    "off -": "off of, off, discount on",
    "of of": "of",
    "and ,": "and",
    "fold sum": "sum of, total of",
    "fold mean": "average of, mean of",
    "fold prod": "product of",
    "fold max": "maximum of, max of, largest of, highest of, biggest of, greatest of",
    "fold min": "minimum of, min of, smallest of, lowest of, least of",
    "fold gcd": "greatest common divisor of, greatest common factor of, gcd of",
    "fold lcm": "least common multiple of, lowest common multiple of, lcm of",
    "fold diff": "difference between, difference of",
    "fold quotient": "quotient of",
    "function sqrt": "square root of, square root, root of",
    "function cbrt": "cube root of, cube root",
    "function sin": "sine of, sine",
    "function cos": "cosine of, cosine",
    "function tan": "tangent of, tangent",
    "function ln": "natural logarithm of, natural log of, natural log",
    "function log": "logarithm of, logarithm, log of",
    "function factorial": "factorial of",
    "function abs": "absolute value of",
    "function round": "round off, rounded",
    "bang factorial": "factorial",
    "squaring 2": "square of",
    "squaring 3": "cube of",
    "power 2": "squared",
    "power 3": "cubed",
    "unit degrees": "degrees, degree, deg",
    "unit radians": "radians, radian, rad",
    "unit $": "dollars, dollar, bucks, usd",
    "unit €": "euros, euro, eur",
    "unit pounds": "pounds",
    "unit 円": "yen, jpy",
    "unit 元": "yuan, rmb, cny",
    "multiple 2": "double, twice",
    "multiple 3": "triple, thrice",
    "command add": "add",
    "command subtract": "subtract, take",
    "command multiply": "multiply",
    "command divide": "divide",
    "command increase": "increase",
    "command decrease": "decrease, reduce",
    "link to": "to",
    "link from": "from, away from",
    "link by": "by",
    "into into": "into",
    "than -": "less than, fewer than",
    "than +": "more than, greater than",
    "then then": "then, and then",
    "base base": "base, to the base",
    "choose choose": "choose",
    "remainder of": "remainder of, remainder when",
    "neg -": "negative",
    "filler the": "the",
    "open (": "open parenthesis, open bracket, open paren, left parenthesis",
    "close )": "close parenthesis, close bracket, close paren, right parenthesis",
    "constant pi": "π",
}
_EAST_ASIAN = {
    "op +": "加上 加 プラス 足す たす 더하기",
    "op -": "减去 減去 减 減 マイナス 引く ひく 빼기",
    "op *": "乘以 乘 掛ける かける 곱하기",
    "op /": "除以 割る わる 나누기",
    "op mod": "取余 取模 模",
    "into into": "除",
    "te +": "足して たして 足した たした",
    "te -": "引いて ひいて 引いた ひいた",
    "te *": "掛けて かけて 掛けた かけた",
    "te /": "割って わって 割った わった",
    "change +": "増やす 増やして 上げる",
    "change -": "減らす 減らして 下げる",
    "percent %": "パーセント 퍼센트 プロ",
    "percentoff -": "引き 引 オフ 割引",
    "percentoff +": "増し 増",
    "possessive 的": "的 の",
    "and ,": "和 与 與 跟 以及 と 、",
    "noun sum": "合计 總和 总和 之和 合計",
    "noun mean": "平均数 平均數 平均值 平均値 平均",
    "noun prod": "乘积 乘積 積 积",
    "noun max": "最大值 最大値 最大",
    "noun min": "最小值 最小値 最小",
    "noun gcd": "最大公约数 最大公約數 最大公約数",
    "noun lcm": "最小公倍数 最小公倍數",
    "noun diff": "差值 差",
    "noun quotient": "商",
    "together +": "相加 加起来 加起來",
    "together *": "相乘 乘起来 乘起來",
    "function sqrt": "根号 根號 平方根 ルート 루트",
    "function cbrt": "立方根",
    "function sin": "正弦 サイン",
    "function cos": "余弦 餘弦 コサイン",
    "function tan": "正切 タンジェント",
    "function log": "对数 對數 対数",
    "function ln": "自然对数 自然對數 自然対数",
    "function factorial": "阶乘 階乘 階乗",
    "function abs": "绝对值 絕對值 絶対値",
    "power 2": "平方",
    "power 3": "立方",
    "unit degrees": "度",
    "unit radians": "弧度 ラジアン",
    "unit 円": "円 日元 日圆",
    "unit 元": "元 块钱 块 人民币",
    "unit $": "美元 美金 ドル",
    "unit €": "欧元 ユーロ",
    "share half": "一半 半分",
    "dozen dozen": "ダース",
    "particle に": "に",
    "particle から": "から",
    "particle を": "を",
    "particle で": "で",
    "then then": "再 然后 然後",
    "filler also": "それに そこから さらに それを これを",
    "lead from": "从 從 把 将 將",
    "remainder of": "余り あまり 余数 餘數",
    "choose choose": "选 選",
    "neg -": "负 負",
    "base 以": "以",
    "base 为底": "为底数 为底 為底",
    "constant pi": "圆周率 圓周率 円周率 派 パイ",
    "open (": "左括号 カッコ開き カッコ",
    "close )": "右括号 カッコ閉じる カッコ閉じ",
}
_MEANINGS = {
    **{phrase: meaning for meaning, phrases in _ENGLISH.items() for phrase in phrases.split(", ")},
    **{phrase: meaning for meaning, phrases in _EAST_ASIAN.items() for phrase in phrases.split()},
}


def _longest_first(phrases: list[str]) -> str:
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))


_PHRASE = re.compile(
    rf"(?:{_longest_first([phrase for phrase in _MEANINGS if phrase.isascii()])})(?![a-z\d_])"
    rf"|{_longest_first([phrase for phrase in _MEANINGS if not phrase.isascii()])}",
    re.IGNORECASE,
)
_ALSO_FUNCTIONS = re.compile(r"(?:degrees|radians|factorial)\s*\(", re.IGNORECASE)
_BEFORE = re.compile(
    r"(?:\s|[=:：]|(?:hey|ok|okay|please|so|can you|could you|tell me|calculate|compute|evaluate|work out|find|give me"
    r"|what(?:'s| is| are)?|how much (?:is|are)|the (?:result|answer) (?:of|to))(?![\w(])"
    r"|請問|请问|请你|请|帮我|计算一下|计算|算一下|算算|算|求)++",
    re.IGNORECASE,
)
# Possessive (++), because 等于多少等于多少… can be cut in very many ways.
_AFTER = re.compile(
    r"(?:\s|[=?。、,]|(?<!\d)\.|\.(?=\s*$)|(?<![a-z])(?:equals?|is|makes?|please|thanks|thank you)"
    r"|(?:等于|等於|是|得)?(?:多少|几|幾|什么)钱?|等于|等於|一共|を?計算(?:して)?(?:ください|下さい)?"
    r"|(?:は|って)?(?:いくつ|いくら|何|なに|なん)(?:ですか|になりますか|でしょうか)?|は|ですか|(?<=[すくるう])と|(?<=[たえ])ら)++$",
    re.IGNORECASE,
)


def phrase(text: str, position: int) -> tuple[str, str, int] | None:
    """Return the kind, the text and the end of the phrase at `position`, None when there is none."""
    match = _PHRASE.match(text, position)
    if not match or _ALSO_FUNCTIONS.match(text, position):
        return None
    kind, _, meaning = _MEANINGS[re.sub(r"\s+", " ", match[0].lower())].partition(" ")
    return kind, meaning, match.end()


def courtesies(text: str) -> tuple[int, int]:
    """Return where what is to be calculated begins and ends in `text`, between "what is" and "?"."""
    before = _BEFORE.match(text)
    start = before.end() if before else 0
    after = _AFTER.search(text, start)
    return start, after.start() if after else len(text)
