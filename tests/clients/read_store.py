"""What other engines read in a store, as JSON: one object with the answer of each engine to the same questions.

DuckDB, pyarrow and ClickHouse (chdb) read the files; the package deltalake and ClickHouse read the Delta log.

Usage: read_store.py STORE KEY…, where KEY is a column of attributes such as int:user.
"""

import json
import os
import sys

import chdb
import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

store, keys = sys.argv[1], sys.argv[2:]


def by_duckdb(key):
    spans = f"read_parquet('{store}/spans/*/*/*.parquet', hive_partitioning = true, union_by_name = true)"
    rows = duckdb.sql(
        f"""SELECT name, "{key}" AS value, count(*) AS spans, sum(end_ns - start_ns)::BIGINT AS total_ns
        FROM {spans} GROUP BY ALL ORDER BY ALL NULLS FIRST"""
    )
    return [list(row) for row in rows.fetchall()]


def grouped(key, table):
    table = table.append_column("ns", pc.subtract(table["end_ns"], table["start_ns"]))
    name = pc.cast(table["name"], pa.string())
    table = table.set_column(0, "name", name)
    found = table.group_by(["name", key]).aggregate([("ns", "count"), ("ns", "sum")])
    rows = [[row["name"], row[key], row["ns_count"], row["ns_sum"]] for row in found.to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1] is not None, row[1] or 0))


def by_pyarrow(key):
    files = ds.dataset(f"{store}/spans", partitioning="hive")
    schemas = [file.physical_schema for file in files.get_fragments()]
    schema = pa.unify_schemas(schemas + [files.schema])
    spans = ds.dataset(f"{store}/spans", partitioning="hive", schema=schema)
    return grouped(key, spans.to_table(columns=["name", key, "start_ns", "end_ns"]))


def by_delta(key):
    spans = deltalake.DeltaTable(f"{store}/spans").to_pyarrow_dataset()
    return grouped(key, spans.to_table(columns=["name", key, "start_ns", "end_ns"]))


def by_clickhouse(key, spans):
    rows = chdb.query(
        f"""SELECT name, `{key}` AS value, count() AS spans, sum(end_ns - start_ns) AS total_ns
        FROM {spans} GROUP BY ALL ORDER BY name, value NULLS FIRST
        SETTINGS schema_inference_mode = 'union', output_format_json_quote_64bit_integers = 0""",
        "JSONCompact",
    )
    return json.loads(str(rows))["data"]


def answers(key):
    return {
        "duckdb": by_duckdb(key),
        "pyarrow": by_pyarrow(key),
        "delta": by_delta(key),
        "clickhouse": by_clickhouse(key, "file('spans/*/*/*.parquet', 'Parquet')"),
        "clickhouse_delta": by_clickhouse(key, f"deltaLakeLocal('{store}/spans')"),
    }


os.chdir(store)  # ClickHouse reads files only below the current directory
print(json.dumps({key: answers(key) for key in keys}))
