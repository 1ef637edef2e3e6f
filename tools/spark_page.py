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
        '`spark.read.format("stoker")`, `spark.readStream.format("stoker")` and `df.write.format("stoker")`. Options'
        " have no case in their names; one that is unknown, or has no meaning for the table, is refused before any data"
        " moves. How to begin: [the tutorial](../pipeline/tutorial.md).",
        "## Options of every read and write",
        option_table(CONNECTING),
        "## Options of every read",
        option_table(LISTED),
        *[block for name in TABLES for block in table_blocks(name)],
        "## Writing",
        "Each row of a DataFrame becomes a job, exactly once, whatever Spark runs again. Save mode is `append`.",
        option_table({name: says for name, says in WRITING.items() if name not in CONNECTING}),
        "These columns are options of the jobs. A column `payload` (binary or string) is the payload as it is, and then"
        " there may be no others; without one, all other columns together are: a MessagePack map, which is what an"
        " app's handlers take as their arguments. A null leaves the option at its default.",
        table("Column, Type", [[code(name), " or ".join(KINDS[k] for k in kinds)] for name, kinds in columns()]),
        "In a map of the row decimals, days and times without a zone are texts, moments are timestamps of MessagePack,"
        " maps are maps, `binary` is bytes. Variants and intervals of years and months have no form, and are refused.",
        "What tasks have written waits for Spark's commit for an hour, and is dropped then: a write whose first task"
        " ends more than an hour before its last one fails, and pushes nothing. Cut it into several, or give it longer:"
        " `engine.stage_ttl_ms` of the server. That a transaction is over is remembered for a day"
        " (`engine.transaction_ttl_ms`); a stream that is restarted later than that, after a crash between the"
        " publication of a batch and Spark's note of it, pushes this batch a second time.",
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
