"""The reference page of the data source: its tables, options and columns, from `src/stoker/spark`."""

from stoker.spark.fleet.streaming import TAKING
from stoker.spark.fleet.work import ENDS, JOBS
from stoker.spark.options import CONNECTING, LISTED, READING, WRITING
from stoker.spark.rows import KINDS, OPTION_COLUMNS
from stoker.spark.tables import ABOUT, PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW, SPARK_TYPES, TABLES, WITH_PAYLOAD, Column
from tools.make_docs import code, page, table


def spark_page() -> str:
    return page(
        "Spark: the data source",
        "spark/{options,tables,rows}.py and spark/fleet",
        '`spark.read.format("stoker")`, `spark.readStream.format("stoker")` and `df.write.format("stoker")`. Names of'
        " options are case-insensitive; unknown options, and those without a meaning for the table, are refused before"
        " any data moves. How to begin: [the tutorial](../pipeline/tutorial.md).",
        "## Options of every read and write",
        option_table(CONNECTING),
        "## Options of every read",
        option_table(LISTED),
        *[block for name in TABLES for block in table_blocks(name)],
        "## Writing",
        "Each row of a DataFrame becomes a job, exactly once, even if Spark runs tasks again. Save mode is `append`.",
        option_table({name: says for name, says in WRITING.items() if name not in CONNECTING}),
        "These columns are options of the jobs. A column `payload` (binary or string) is the payload itself, and then"
        " there may be no other columns. Without one, all other columns together are the payload: a MessagePack map,"
        " which an app's handlers take as their arguments. A null leaves the option at its default.",
        table("Column, Type", [[code(name), " or ".join(KINDS[k] for k in kinds)] for name, kinds in columns()]),
        "In such a map, decimals, dates and times without a zone become text, timestamps become MessagePack timestamps,"
        " maps stay maps, and `binary` becomes bytes. Variants and intervals of years and months are refused.",
        "Staged rows wait an hour for Spark's commit and are then dropped: a write whose first task ends more than an"
        " hour before its last one fails, and pushes nothing. Cut it into several writes, or raise"
        " `engine.stage_ttl_ms` of the server. The queue remembers a finished transaction for a day"
        " (`engine.transaction_ttl_ms`). If a stream crashes between the publication of a batch and Spark's note of it,"
        " and is restarted later than that, it pushes this batch a second time.",
        "## Jobs as a stream",
        '`spark.readStream.format("stoker_jobs")` takes jobs out of queues, and the sink of that name settles them:'
        " see [Spark as a worker](../pipeline/workers.md). Spark finds both by itself where Stoker is installed.",
        option_table({name: says for name, says in TAKING.items() if name not in CONNECTING}),
        "The stream has these columns: " + JOBS + ". The sink takes these, of which `id` and `token` are needed: "
        f"{ENDS}. A row with an `error` or a `verdict` (retry, dead, snooze, cancel) fails its job, any other completes"
        " it.",
    )


def columns() -> list[tuple[str, tuple[str, ...]]]:
    return list(OPTION_COLUMNS.items())


def table_blocks(name: str) -> list[str]:
    own = {option: says for option, says in READING[name].items() if option not in LISTED}
    shown = TABLES[name]
    if name in WITH_PAYLOAD:
        extras = (PAYLOAD, PAYLOAD_ERROR, PAYLOAD_RAW)
        shown = (*shown, *(extra for extra in extras if extra.name not in [c.name for c in shown]))
    return [f"## Table {code(name)}", ABOUT[name], option_table(own) if own else "", column_table(shown)]


def option_table(options: dict[str, str]) -> str:
    return table("Option, Meaning", [[code(name), says] for name, says in options.items()])


def column_table(shown: tuple[Column, ...]) -> str:
    rows = [[code(column.name), code(SPARK_TYPES[column.type]), column.says] for column in shown]
    return table("Column, Type, Meaning", rows)
