"""Files of MIND, as they are published: a few news and clicks."""

from ncfbench.data import prepare as prepare_data
from ncfbench.data.sources.mind import Options


def news(id_, title, abstract="", category="sports", subcategory="golf"):
    return f"{id_}\t{category}\t{subcategory}\t{title}\t{abstract}\thttps://example.com/{id_}\t[]\t[]\n"


def behavior(number, user, history, impressions):
    return f"{number}\t{user}\t11/12/2019 2:14:46 PM\t{history}\t{impressions}\n"


NEWS = [
    news("N10", 'The "Old" dog', "An old dog, at 10:30."),
    news("N2", "Red fish"),
    news("N9", 'A " quote', "fish", "news", "newsworld"),
    news("N1", "Never clicked", "dog"),
]
BEHAVIORS = [
    behavior(1, "U20", "N9 N77", "N10-1 N2-0 N1-0"),
    behavior(2, "U3", "", "N2-1 N10-1"),
    behavior(3, "U20", "N9 N77", "N10-1 N9-0"),
    behavior(4, "U100", "N2", "N1-0 N88-1"),
    behavior(5, "U4", "N10 N9", "N1-0"),
]


def write(folder, news_lines=NEWS, behaviors=BEHAVIORS):
    folder.mkdir(parents=True)
    (folder / "news.tsv").write_text("".join(news_lines), encoding="utf-8")
    (folder / "behaviors.tsv").write_text("".join(behaviors), encoding="utf-8")
    return folder


def prepare(folder, data_dir, **options):
    said: list[str] = []
    usual = {"test_fraction": 0.0, "validation_fraction": 0.0}
    chosen = Options(from_=folder, **(usual | options))
    return prepare_data("mind", chosen, data_dir, replace=True, say=said.append), said
