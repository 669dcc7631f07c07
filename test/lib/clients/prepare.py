# SPDX-License-Identifier: PostgreSQL
"""Prepares the calls on the input, a JSON array of [sql, [type, ...]], with values of Python; prints what is refused."""
import datetime
import json
import sys
import uuid

import psycopg
from psycopg.types.json import Jsonb

OF = {"bigint": 7, "integer": 7, "smallint": 7, "text": "x", "boolean": True, "double precision": 0.5, "jsonb": Jsonb({}), "uuid": uuid.uuid4(), "uuid[]": [uuid.uuid4()],
      "interval": datetime.timedelta(seconds=1), "timestamp with time zone": datetime.datetime.now(datetime.timezone.utc),
      "bigint[]": [7], "integer[]": [7], "text[]": ["x"], "jsonb[]": [Jsonb({})], "interval[]": [datetime.timedelta(seconds=1)]}
# what Python has no values of: names
OF.update({"regrole": "pg_monitor", "regproc": "pg_catalog.now", "regprocedure": "pg_catalog.now()", "regclass": "pg_class"})

with psycopg.connect("") as conn:
    for sql, types in json.load(sys.stdin):
        for i in range(len(types)):
            sql = sql.replace(f"${i + 1}", "%s", 1)
        for values in ([OF[name] for name in types], [None] * len(types)):
            try:
                with conn.transaction():
                    conn.execute("EXPLAIN " + sql, values, prepare=True)
            except psycopg.Error as error:
                # others come from the function itself, which is asked for its estimate with these values
                if error.sqlstate in ("42883", "42725", "42P18", "42P08", "42804", "42846", "42601"):
                    print(sql, str(error).splitlines()[0])
print("done")
