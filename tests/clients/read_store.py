"""What DuckDB and pyarrow read in a store, as JSON: one object with what each of them says to the same questions.

Usage: read_store.py STORE KEY…, where KEY is a column of attributes such as int:user.
"""

import json
import sys

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


def by_pyarrow(key):
    files = ds.dataset(f"{store}/spans", partitioning="hive")
    schemas = [file.physical_schema for file in files.get_fragments()]
    schema = pa.unify_schemas(schemas + [files.schema])
    spans = ds.dataset(f"{store}/spans", partitioning="hive", schema=schema)
    table = spans.to_table(columns=["name", key, "start_ns", "end_ns"])
    table = table.append_column("ns", pc.subtract(table["end_ns"], table["start_ns"]))
    name = pc.cast(table["name"], pa.string())
    table = table.set_column(0, "name", name)
    grouped = table.group_by(["name", key]).aggregate([("ns", "count"), ("ns", "sum")])
    rows = [[row["name"], row[key], row["ns_count"], row["ns_sum"]] for row in grouped.to_pylist()]
    return sorted(rows, key=lambda row: (row[0], row[1] is not None, row[1] or 0))


print(json.dumps({key: {"duckdb": by_duckdb(key), "pyarrow": by_pyarrow(key)} for key in keys}))
