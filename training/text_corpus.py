"""Build the training texts of `mini`'s text tower and the held-out test prompts.

Sources: class names of public sound datasets and AudioSet's tag names (in the shared text folder),
WordNet's words and glosses (Debian's `wordnet-base`), and prompts and short captions composed from
them with our own noise phrases. Captions of Clotho (non-commercial) and AudioCaps (its licence file
says MIT, its README "academic purposes only") are not trained on, because the weights are
published. AudioCaps only provides words for the held-out test.

A *group* is a list of texts about one word. If its first text is the clean prompt of the others
("the sound of {c}", then composed prompts), it is marked `drift`, and the differences enter the
loss too. Output, in the work folder: `corpus.tsv` (group, drift, text), `heldout_words.tsv` and
`heldout_prompts.tsv` (2,000 prompts, each with a word that occurs in no training text).

    python -m training.text_corpus
"""

import argparse
import csv
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"
WORK = REPOSITORY / "training" / "work" / "text"
SEED = 20261115


def listed(text: str) -> list[str]:
    """Return the entries of a text separated by vertical bars."""
    return text.split("|")


CLEAN = "the sound of {c}"
COMPOSED = (
    "{c} with {p}",
    "{c} with {p} in the background",
    "the sound of {c} mixed with {p}",
    "a recording of {c} with {p}",
)
SINGLE = (
    "{c}",
    "{c}",
    "{c}",
    "the sound of {c}",
    "the sound of {c}",
    "This is a sound of {c}",
    "a recording of {c}",
    "a sound of {c}",
    "{c} sounds in the background",
    "This is a sound of {c} in the background",
    "{c} noise",
    "{c} sound",
    "sound of {c}",
    "{c} can be heard",
    "a person can hear {c}",
    "an audio clip of {c}",
    "this is {c}",
    "the noise of {c}",
)
CAPTIONS = (
    "{a} and {b}",
    "{a} followed by {b}",
    "{a} while {b} can be heard in the distance",
    "a {a} with {b} nearby",
    "{a}, then {b}, with {p}",
    "{p} as {a} goes on and {b} stops",
    "someone near a {a} and a loud {b}",
    "{a} in a quiet room",
    "{a} outdoors, {p}",
    "the {a} gets louder, and {b} begins",
)
PRODUCT_PHRASES = listed(
    "white noise|pink noise|brown noise|Gaussian noise|static|hiss|mains hum|buzz|crackle|rumble|"
    "distortion|reverberation|echo|environmental noise|clipping noise|"
    "kitchen noise|living room noise|washing machine noise|sports field noise|park noise|"
    "river noise|hallway noise|meeting room noise|office noise|cafeteria noise|restaurant noise|"
    "station noise|cafe noise|public square noise|street traffic noise|bus noise|car noise|"
    "metro noise|DTMF tones|dial tones|fax machine noise|car idling|thunder|wind|footsteps|"
    "paper rustling|rain|animal noises|crowd noise|technical noise|babble|background music|"
    "background noise|ambient sound|noise in the recording|audio interference|low quality audio"
)
SCENES = listed(
    "airport|shopping mall|metro station|pedestrian street|public square|street traffic|tram|bus|"
    "metro|park|train|classroom|library|supermarket|beach|forest|factory|construction site|"
    "playground|swimming pool|gym|hotel lobby|hospital|garage|farm|harbour|stadium|church|bar|"
    "bathroom|bedroom|basement|workshop|warehouse|laundromat|elevator|stairwell|corridor|lobby|"
    "market|highway|tunnel|bridge|parking lot|campsite|garden|lake|mountain|canteen|call centre|"
    "server room|data centre|greenhouse|museum|theatre|concert hall|nightclub|casino|zoo|"
    "petrol station|fire station|police station|post office|bank|school yard|kindergarten"
)
SOURCES = listed(
    "air conditioner|fan|refrigerator|dishwasher|vacuum cleaner|lawn mower|generator|compressor|"
    "engine|motorcycle|truck|aeroplane|helicopter|boat|tractor|drill|hammering|sawing|printer|"
    "computer fan|keyboard typing|mouse clicking|phone ringing|television|radio|speech|"
    "people talking|children playing|laughter|applause|singing|dogs barking|birds|crickets|frogs|"
    "cicadas|bees|cows|waves|running water|dripping water|waterfall|stream|heavy rain|light rain|"
    "hail|storm|gusty wind|leaves rustling|fire crackling|clock ticking|alarm|siren|church bells|"
    "doors closing|dishes clattering|cutlery|chairs scraping|coughing|breathing|heartbeat|"
    "microphone handling|cable noise|power line|transformer|fluorescent lamp|modem|tape|vinyl"
)
QUALITIES = listed(
    "loud|quiet|faint|distant|constant|steady|intermittent|low|high|muffled|harsh|soft|heavy|"
    "light|strong|weak|continuous|occasional|nearby|echoing"
)
DEFECTS = listed(
    "interference|feedback|dropouts|wind buffeting|microphone noise|codec artefacts|compression|"
    "aliasing|quantisation noise|tape hiss|vinyl crackle|electrical hum|ground loop hum|"
    "radio static|line noise|pops and clicks|a bad microphone|a poor connection|low bitrate|"
    "wow and flutter|overdrive|blue noise|violet noise|grey noise|thermal noise|shot noise|"
    "broadband noise|narrowband noise|impulse noise|speckle|silence|a noisy channel"
)
HELD_OUT_WORDS = 2400
HELD_OUT_PROMPTS = 2000
WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Group:
    """Texts about one word; with `drift` the first is the clean prompt of the composed ones."""

    texts: tuple[str, ...]
    drift: bool


def words_of(text: str) -> list[str]:
    """Return the lower-case alphabetic words of a text."""
    return WORD.findall(text.lower())


def fetch_wordnet(home: Path) -> Path:
    """Return WordNet's database folder; download Debian's package if it does not exist."""
    return fetch_package(home, "wordnet-base", "usr/share/wordnet")


def fetch_package(home: Path, name: str, folder: str) -> Path:
    """Return a folder of a Debian package; download and unpack it if it does not exist."""
    found = home / "root" / folder
    if not found.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", name], cwd=home, check=True)
        package = next(home.glob(f"{name}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", package.name, "root"], cwd=home, check=True)
    return found


def read_lemmas(database: Path) -> dict[str, int]:
    """Return WordNet's words and collocations, lower-case, with their frequency in tagged text."""
    lemmas: dict[str, int] = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in (database / f"index.{part}").read_text("latin-1").splitlines():
            if not line.startswith(" "):
                lemma = line.split(" ", 1)[0].replace("_", " ").lower()
                if re.fullmatch(r"[a-z][a-z' -]*[a-z]", lemma):
                    lemmas.setdefault(lemma, 0)
    for line in (database / "cntlist.rev").read_text("latin-1").splitlines():
        sense, _, count = line.split(" ")
        lemma = sense.split("%")[0].replace("_", " ").lower()
        if lemma in lemmas:
            lemmas[lemma] += int(count)
    return lemmas


def read_glosses(database: Path) -> list[str]:
    """Return WordNet's definitions and examples as separate texts."""
    texts: list[str] = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (database / f"data.{part}").read_text("latin-1").splitlines():
            if not line.startswith(" ") and "|" in line:
                gloss = line.split("|", 1)[1]
                texts += [t.strip(' "') for t in re.split(r"; |\"", gloss)]
    return [text for text in dict.fromkeys(texts) if 2 <= len(text.split()) <= 18]


def read_class_names(folder: Path) -> list[str]:
    """Return the class names of the public sound datasets, as words."""
    names: list[str] = []
    for path in sorted(folder.glob("*_class_labels_indices.json")):
        names += [name.replace("_", " ") for name in json.loads(path.read_text("utf-8"))]
    with (folder / "audioset_class_labels.csv").open(encoding="utf-8") as rows:
        names += [row["display_name"] for row in csv.DictReader(rows)]
    ontology = json.loads((folder / "audioset_ontology.json").read_text("utf-8"))
    names += [entry["name"] for entry in ontology]
    parts = [part.strip() for name in names for part in name.split(",")]
    return list(dict.fromkeys([*names, *parts]))


def read_captions(folder: Path) -> list[str]:
    """Return AudioCaps' training captions without repeats; for testing only."""
    lines = (folder / "captions_audiocaps_train.txt").read_text("utf-8").splitlines()
    return [line for line in dict.fromkeys(lines) if 2 <= len(line.split()) <= 20]


def inflect(lemmas: dict[str, int], database: Path) -> list[str]:
    """Return plurals and -ing forms of frequent words, formed by rule; a few are wrong."""
    forms: list[str] = []
    for part, make in (("noun", pluralise), ("verb", continue_verb)):
        for line in (database / f"index.{part}").read_text("latin-1").splitlines():
            word = line.split(" ", 1)[0]
            if re.fullmatch(r"[a-z]{3,12}", word) and lemmas.get(word, 0) > 0:
                forms.append(make(word))
    return list(dict.fromkeys(forms))


def pluralise(noun: str) -> str:
    """Return the regular plural of a noun."""
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


def continue_verb(verb: str) -> str:
    """Return the regular -ing form of a verb."""
    if re.search(r"[^e]e$", verb):
        return verb[:-1] + "ing"
    doubled = re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", verb)
    return verb + verb[-1] + "ing" if doubled else verb + "ing"


def make_noise_phrases(rng: random.Random) -> list[str]:
    """Return further noise phrases, composed from scenes, sources and qualities."""
    phrases = list(DEFECTS)
    for place in SCENES:
        phrases += [f"{place} noise", f"{place} ambience", f"the noise of a {place}", place]
    for source in SOURCES:
        phrases += [f"{source} noise", source, f"{source} in the background"]
    body = [*PRODUCT_PHRASES, *phrases]
    phrases += [f"{quality} {rng.choice(body)}" for quality in QUALITIES for _ in range(60)]
    phrases += [f"{rng.choice(SOURCES)} and {rng.choice(body)}" for _ in range(800)]
    return [phrase for phrase in dict.fromkeys(phrases) if phrase not in PRODUCT_PHRASES]


def choose_held_out(
    lemmas: dict[str, int], captions: list[str], protected: set[str], rng: random.Random
) -> dict[str, str]:
    """Return the held-out words with the stratum that each was drawn from.

    `common`: WordNet words that occur in its tagged text; `rare`: those that do not; `caption`:
    words of 2 to 20 captions. Words of class names, noise phrases and templates are never chosen.
    """
    single = [w for w in lemmas if re.fullmatch(r"[a-z]{4,14}", w) and w not in protected]
    in_captions = Counter(word for caption in captions for word in set(words_of(caption)))
    strata = {
        "common": [w for w in single if lemmas[w] > 0 and in_captions[w] <= 20],
        "rare": [w for w in single if lemmas[w] == 0 and in_captions[w] <= 20],
        "caption": [
            w for w, n in in_captions.items() if 2 <= n <= 20 and len(w) >= 4 and w not in protected
        ],
    }
    shares = {"common": 0.5, "rare": 0.3, "caption": 0.2}
    chosen: dict[str, str] = {}
    for stratum, candidates in strata.items():
        pool = sorted(w for w in candidates if w not in chosen)
        for word in rng.sample(pool, round(shares[stratum] * HELD_OUT_WORDS)):
            chosen[word] = stratum
    return chosen


def compose(word: str, phrases: list[str], count: int, rng: random.Random) -> Group:
    """Return a drift group: the clean prompt of `word` and `count` composed prompts."""
    drawn = [
        rng.choice(PRODUCT_PHRASES) if rng.random() < 0.6 else rng.choice(phrases)
        for _ in range(count)
    ]
    texts = [rng.choice(COMPOSED).format(c=word, p=phrase) for phrase in drawn]
    return Group((CLEAN.format(c=word), *texts), drift=True)


def build_groups(
    lemmas: dict[str, int],
    glosses: list[str],
    names: list[str],
    inflected: list[str],
    rng: random.Random,
) -> list[Group]:
    """Return all groups, before the held-out words are removed."""
    phrases = make_noise_phrases(rng)
    groups = [compose(name.lower(), phrases, 11, rng) for name in names]
    groups += [
        Group((name, f"This is a sound of {name}", f"a recording of {name}"), False)
        for name in names
    ]
    used = sorted(word for word, count in lemmas.items() if count > 0)
    other = sorted(word for word, count in lemmas.items() if count == 0)
    drifting = [*rng.sample(used, 14000), *rng.sample(inflected, 5000)]
    groups += [compose(word, phrases, 4, rng) for word in dict.fromkeys(drifting)]
    single = [*used, *inflected, *rng.sample(other, 50000)]
    groups += [Group((rng.choice(SINGLE).format(c=word),), False) for word in single]
    groups += [Group((text,), False) for text in [*phrases, *PRODUCT_PHRASES]]
    groups += [
        Group((rng.choice(SINGLE[3:]).format(c=text),), False)
        for text in [*phrases, *PRODUCT_PHRASES, *SCENES]
    ]
    things = [*(name.lower() for name in names), *SOURCES, *SCENES, *used]
    for _ in range(15000):
        first, second = rng.sample(things, 2) if rng.random() < 0.3 else rng.sample(names, 2)
        caption = rng.choice(CAPTIONS).format(a=first, b=second, p=rng.choice(PRODUCT_PHRASES))
        groups.append(Group((caption,), False))
    groups += [Group((text,), False) for text in rng.sample(glosses, 35000)]
    return groups


def remove_words(groups: Iterable[Group], held_out: set[str]) -> list[Group]:
    """Return the groups without texts that contain a held-out word or its plural."""
    banned = held_out | {word + "s" for word in held_out} | {word + "es" for word in held_out}
    kept: list[Group] = []
    for group in groups:
        texts = tuple(t for t in group.texts if banned.isdisjoint(words_of(t)))
        if texts and (not group.drift or (len(texts) > 1 and texts[0] == group.texts[0])):
            kept.append(Group(texts, group.drift))
    return kept


def make_held_out_prompts(held_out: dict[str, str], rng: random.Random) -> list[dict[str, str]]:
    """Return the test prompts: each held-out word once, in one of the product's templates."""
    templates = (
        *COMPOSED,
        CLEAN,
        "This is a sound of {c}",
        "{c}",
        "a recording of {c}",
        "{c} sounds in the background",
        "This is a sound of {c} in the background",
    )
    words = sorted(held_out)
    rng.shuffle(words)
    rows = []
    for index, word in enumerate(words[:HELD_OUT_PROMPTS]):
        template = templates[index % len(templates)]
        phrase = rng.choice(PRODUCT_PHRASES) if "{p}" in template else ""
        text = template.format(c=word, p=phrase)
        rows.append(
            {
                "text": text,
                "template": template,
                "word": word,
                "stratum": held_out[word],
                "clean": CLEAN.format(c=word),
            }
        )
    return rows


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write dictionaries with the same keys as tab-separated lines with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Build the corpus and the held-out prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--work", type=Path, default=WORK)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    database = fetch_wordnet(options.work / "wordnet")
    lemmas = read_lemmas(database)
    names = read_class_names(options.shared / "text")
    captions = read_captions(options.shared / "text")
    fixed = [*names, *PRODUCT_PHRASES, *SCENES, *SOURCES, *QUALITIES, *DEFECTS]
    fixed += [*SINGLE, *COMPOSED, *CAPTIONS, "ambience"]
    protected = {word for text in fixed for word in words_of(text)}
    held_out = choose_held_out(lemmas, captions, protected, rng)
    inflected = inflect(lemmas, database)
    groups = build_groups(lemmas, read_glosses(database), names, inflected, rng)
    groups = remove_words(groups, set(held_out))
    rng.shuffle(groups)
    write_rows(
        options.work / "corpus.tsv",
        [
            {"group": str(number), "drift": str(int(group.drift)), "text": text}
            for number, group in enumerate(groups)
            for text in group.texts
        ],
    )
    write_rows(
        options.work / "heldout_words.tsv",
        [{"word": word, "stratum": stratum} for word, stratum in sorted(held_out.items())],
    )
    prompts = make_held_out_prompts(held_out, rng)
    write_rows(options.work / "heldout_prompts.tsv", prompts)
    count = sum(len(group.texts) for group in groups)
    print(f"{count} texts in {len(groups)} groups; {len(held_out)} words held out")


if __name__ == "__main__":
    main()
