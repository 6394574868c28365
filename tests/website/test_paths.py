"""Links between pages, as they are on a code host and in the site."""

from __future__ import annotations

import pytest

from website import paths


def rewritten(path: str, text: str) -> str:
    return paths.rewrite(path, text, lambda source: f"<{source}>")


@pytest.mark.parametrize(
    ("path", "link", "expected"),
    [
        ("docs/eks.md", "configuration.md#the-job", "configuration.md#the-job"),
        ("docs/eks.md", "../k8s/README.md", "manifests.md"),
        ("docs/eks.md", "../k8s", "manifests.md"),
        ("docs/eks.md", "../k8s/volumes/efs/volume.yaml", "source/k8s/volumes/efs/volume.yaml.md"),
        ("docs/eks.md", "../k8s/job", "source/k8s/job.md"),
        ("docs/zh/faults.md", "../../SECURITY.md", "../project/reporting.md"),
        ("README.md", "docs/images/report-demo.png", "images/report-demo.png"),
        ("k8s/README.md", "../docs/eks.md", "eks.md"),
        ("SECURITY.md", "docs/security.md", "../security.md"),
        ("docs/eks.md", "no-such-page.md", "no-such-page.md"),
        ("docs/eks.md", "https://example.org/README.md", "https://example.org/README.md"),
        ("docs/eks.md", "#on-this-page", "#on-this-page"),
    ],
)
def test_a_link_leads_to_the_same_file_in_the_site(path: str, link: str, expected: str) -> None:
    assert rewritten(path, f"See [this]({link}).") == f"See [this]({expected})."
    assert rewritten(path, f"[this]: {link}\n") == f"[this]: {expected}\n"


def test_addresses_in_html_are_those_of_the_built_site() -> None:
    assert rewritten("README.md", '<img src="docs/images/report-demo.png">') == '<img src="<images/report-demo.png>">'


@pytest.mark.parametrize(
    "code",
    ["```sh\n[a](docs/eks.md)\n```\n", "`[a](docs/eks.md)`", "``a `[a](docs/eks.md)``", "    [a](docs/eks.md)\n"],
)
def test_code_stays_as_it_is(code: str) -> None:
    text = f"Before.\n\n{code}\n\nAfter: [a](docs/eks.md)."
    assert rewritten("README.md", text) == text.replace("After: [a](docs/eks.md)", "After: [a](eks.md)")
    assert list(paths.linked("README.md", text)) == ["docs/eks.md"]


def test_a_linked_folder_has_a_page_with_its_files() -> None:
    page = paths.source_page("k8s/job")
    assert "# k8s/job\n" in page
    assert "## job.yaml\n\n```` yaml\n" in page
    assert "kind: Job" in page
