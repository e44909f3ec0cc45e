"""Speed of PyPI's aws-kinesis-agg in its fastest native form (boto3: bytes in, base64 out), for `cargo xtask bench formats`.

One JSON line per case: name, mb_per_s (10^6 bytes of the aggregate), records_per_s, both of the best round.
"""

import datetime
import json
import os
import sys
import time

from aws_kinesis_agg import aggregator, deaggregator

SECONDS = 1 if "--quick" in sys.argv else 4


def aggregate(records):
    agg = aggregator.RecordAggregator()
    for key, data in records:
        # It gives back what it had when a record does not fit any more.
        assert agg.add_user_record(key, data) is None
    return agg.clear_and_get().get_contents()[2]


def measure(name, size, count, run):
    best = float("inf")
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    row = {"name": name, "mb_per_s": size / best / 1e6, "records_per_s": count / best}
    print(json.dumps(row), flush=True)


for name, length, count in (("100b", 100, 480), ("1kb", 1024, 870)):
    records = [(f"sensor-{10000 + i * 7 % 16}", os.urandom(length)) for i in range(count)]
    data = aggregate(records)
    record = {
        "SequenceNumber": "1",
        "ApproximateArrivalTimestamp": datetime.datetime(2024, 1, 1),
        "Data": data,
        "PartitionKey": "k",
    }

    def deaggregate():
        found = sum(1 for _ in deaggregator.iter_deaggregate_records([record], data_format="Boto3"))
        assert found == count

    measure(f"deagg_{name}", len(data), count, deaggregate)
    measure(f"aggregate_{name}", len(data), count, lambda: aggregate(records))
