"""`voice-bridge ingest PATH …`: fill the document collection."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from servers.docsearch.ingest import Report
    from servers.docsearch.settings import DocumentSettings

SHOWN = 20  # files named of each sort


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and folders: PDF, Markdown, text, HTML, docx.", show_default=False)
    ],
    collection: Annotated[
        str | None, typer.Option(help="Collection to fill; default $DOCUMENTS_COLLECTION, else 'documents'.")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the store; default $DOCMIND_CHROMA_PATH or $CHROMA_URL.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Remove documents whose files under PATH are gone.")] = False,
    upgrade_store: Annotated[
        bool, typer.Option("--upgrade-store", help="Allow upgrading a store made by an older Chroma.")
    ] = False,
) -> None:
    """Fill the document collection with files; what is in already and unchanged is skipped.

    Interrupt it whenever you like: the same command goes on where it was. Exit status 1 when a file could not
    be read or the run was interrupted, 2 when nothing could be done.
    """
    from servers.docsearch.errors import DocumentsError
    from servers.docsearch.ingest import Report
    from servers.docsearch.settings import DocumentSettings

    report = Report()
    try:
        settings = DocumentSettings.from_environment(store)
        settings = dataclasses.replace(settings, collection=collection or settings.collection)
        _fill(paths, settings, prune, upgrade_store, report)
    except DocumentsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {_summary(report)} The same command goes on from here.", err=True)
        raise typer.Exit(1) from None
    typer.echo(_summary(report))
    _details(report)
    if report.failed:
        raise typer.Exit(1)


def _fill(paths: list[Path], settings: DocumentSettings, prune: bool, upgrade: bool, report: Report) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from servers.docsearch.embedding import load_model
    from servers.docsearch.errors import INGEST_MODULES, require_extra
    from servers.docsearch.ingest import Ingest, find_files, open_collection
    from servers.docsearch.search import check_model
    from servers.docsearch.settings import DEFAULT_COLLECTION
    from servers.docsearch.writing import open_for_writing

    require_extra(INGEST_MODULES)
    files = find_files(paths, report, missing_ok=prune)
    console = Console(stderr=True)
    console.print(f"{len(files)} file(s) found; loading the embedding model …", style="dim", highlight=False)
    model = load_model(settings.model)

    def waiting() -> None:
        console.print(f"Another ingest is writing to {settings.place}; waiting for it …", highlight=False)

    with open_for_writing(settings, upgrade, waiting) as client:
        target = open_collection(client, settings.collection or DEFAULT_COLLECTION, model)
        if target.count():
            check_model(target, model)
        run = Ingest(target, model, client.get_max_batch_size())
        with Progress(console=console) as progress:
            task = progress.add_task("ingest", total=len(files))
            run.run(files, report, lambda done: progress.advance(task, done))
        missing = run.missing(paths)
        report.gone = sorted(missing.values())
        if prune:
            run.prune(missing)
            report.pruned, report.gone = len(missing), []


def _summary(report: Report) -> str:
    parts = [
        f"{report.added} added",
        f"{report.updated} updated",
        f"{report.unchanged} unchanged",
    ]
    parts += [f"{report.passages} passages written"] if report.passages else []
    parts += [f"{report.pruned} removed"] if report.pruned else []
    parts += [f"{len(report.failed)} not read"] if report.failed else []
    parts += [f"{report.skipped} of other kinds left out"] if report.skipped else []
    return f"{', '.join(parts)}."


def _details(report: Report) -> None:
    for label, reason in report.failed[:SHOWN]:
        typer.echo(f"  not read: {label}: {reason}", err=True)
    if len(report.failed) > SHOWN:
        typer.echo(f"  … and {len(report.failed) - SHOWN} more", err=True)
    if report.gone:
        names = ", ".join(report.gone[:SHOWN])
        typer.echo(
            f"  gone: the files of {len(report.gone)} document(s) no longer exist ({names}); --prune removes them",
            err=True,
        )
