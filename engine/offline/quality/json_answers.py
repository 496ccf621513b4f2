"""Whether answers in JSON still parse: records in words, to be written as one object a line."""

from __future__ import annotations

import json

from engine.offline.quality.subject import Subject

ANSWER_TOKENS = 48
KEYS = {"name", "born", "trade", "cities"}
EXAMPLES = (
    ("Ada Whitfield, a bookbinder born in 1961, has lived in Leeds and York.",
     '{"name": "Ada Whitfield", "born": 1961, "trade": "bookbinder", "cities": ["Leeds", "York"]}'),
    ("Born in 1974, the carpenter Jorge Lima has lived in Porto.",
     '{"name": "Jorge Lima", "born": 1974, "trade": "carpenter", "cities": ["Porto"]}'),
    ("Hanne Dahl, glazier, born in 1988, has lived in Bergen, Oslo and Bath.",
     '{"name": "Hanne Dahl", "born": 1988, "trade": "glazier", '
     '"cities": ["Bergen", "Oslo", "Bath"]}'),
)  # fmt: skip
RECORDS = (
    "Peter Stone, a baker born in 1955, has lived in Exeter.",
    "Born in 1990, the painter Lucy Marsh has lived in Hull and Rome.",
    "Omar Haddad, tailor, born in 1967, has lived in Tunis, Lyon and Paris.",
    "Grace Nwosu, a surgeon born in 1982, has lived in Lagos and London.",
    "Born in 1949, the fisherman Iain Reid has lived in Oban.",
    "Mei Tanaka, gardener, born in 1971, has lived in Kyoto and Osaka.",
    "Tomas Novak, a printer born in 1963, has lived in Prague and Vienna.",
    "Born in 1996, the violinist Clara Voss has lived in Bonn.",
    "Ravi Menon, teacher, born in 1978, has lived in Kochi, Pune and Leeds.",
    "Elsa Lind, a potter born in 1985, has lived in Lund.",
    "Born in 1959, the plumber Frank Doyle has lived in Cork and Derby.",
    "Ines Costa, pilot, born in 1993, has lived in Faro and Madrid.",
)


def validity(subject: Subject) -> float:
    """Share of the records whose answer is an object with the keys that were shown."""
    prompts = [subject.tokenizer.encode(_prompt(record)) for record in RECORDS]
    answers = subject.continuations(prompts, ANSWER_TOKENS)
    return sum(map(is_valid, answers)) / len(answers)


def is_valid(answer: str) -> bool:
    """Whether the first line is what was asked for."""
    line = answer.lstrip().partition("\n")[0]
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == KEYS


def _prompt(record: str) -> str:
    shown = "".join(f"Text: {text}\nJSON: {answer}\n\n" for text, answer in EXAMPLES)
    return f"{shown}Text: {record}\nJSON:"
