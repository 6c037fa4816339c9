"""``ncfbench describe``: the facts of a prepared data set, and of batches of it."""

from __future__ import annotations

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.output import print_json, print_views, say


@reporting
def describe(
    dataset: options.Dataset = None,
    set_: options.Set = None,
    data_dir: options.DataDir = None,
    json_: options.Json = False,
) -> None:
    """Show a data set: counts, what is missing, distributions of links and words, contents of
    batches.

    An encoder's work for a batch is the batch's distinct items, counted here in twenty batches of
    each sampler.

    Example: ncfbench describe synthetic --set batch_size=256
    """
    from ncfbench.config import complete, merge

    given = {"dataset": dataset, "data_dir": data_dir}
    settings, locations = merge(given, set_ or ())
    from ncfbench.data import description, open_dataset
    from ncfbench.sampling import contents

    configs = contents.configurations(settings)
    name = complete({"dataset": settings.get("dataset")}).dataset
    data = open_dataset(name, data_dir=locations.data_dir, say=say)
    found = description.describe(data) | contents.describe(data, configs)
    if json_:
        print_json(found)
    else:
        from ncfbench.cli.description import description_tables
        from ncfbench.data.sources import prepare_command

        command = prepare_command(data.name, {**data.manifest, **found})
        print_views(*description_tables(found), f"Prepared by: {command}")
