"""Two Python implementations of the KPL format, as `tests/peers_kpl.rs` talks to them.

One JSON line in, one out. In: `data` (an aggregate, base64) and `records` (what to pack: `[key, hash key or null,
base64 data]` each). Out: `records` that the peer found in `data`, and `data`, the aggregate that it made of `records`.
"""

import base64
import datetime
import importlib.util
import json
import os
import sys


class Agg:
    """PyPI aws-kinesis-agg. Needs `six`, which it does not declare."""

    def __init__(self):
        from aws_kinesis_agg import aggregator, deaggregator

        self.aggregator = aggregator
        self.deaggregator = deaggregator

    def decode(self, data):
        record = {
            "SequenceNumber": "1",
            "ApproximateArrivalTimestamp": datetime.datetime(2024, 1, 1),
            "Data": data,
            "PartitionKey": "outer",
        }
        for found in self.deaggregator.iter_deaggregate_records([record], data_format="Boto3"):
            found = found["kinesis"]
            yield found["partitionKey"], found["explicitHashKey"], found["data"].decode()

    def encode(self, records):
        aggregator = self.aggregator.RecordAggregator()
        for key, explicit, data in records:
            if aggregator.add_user_record(key, data, explicit) is not None:
                raise ValueError("it did not fit")
        return aggregator.clear_and_get().get_contents()[2]


class AioKpl:
    """PyPI aiokpl: only its codec, which depends on nothing. The package itself would pull in an AWS client."""

    def __init__(self):
        package = importlib.util.find_spec("aiokpl").submodule_search_locations[0]
        spec = importlib.util.spec_from_file_location("codec", os.path.join(package, "aggregation.py"))
        self.codec = importlib.util.module_from_spec(spec)
        sys.modules["codec"] = self.codec
        spec.loader.exec_module(self.codec)

    def decode(self, data):
        for found in self.codec.decode_aggregated(data):
            yield found.partition_key, found.explicit_hash_key, base64.b64encode(found.data).decode()

    def encode(self, records):
        record = self.codec.UserRecord
        return self.codec.encode_aggregated([record(key, data, explicit) for key, explicit, data in records])


peer = {"aws-kinesis-agg": Agg, "aiokpl": AioKpl}[sys.argv[1]]()
for line in sys.stdin:
    case = json.loads(line)
    records = [(key, explicit, base64.b64decode(data)) for key, explicit, data in case["records"]]
    answer = {
        "records": list(peer.decode(base64.b64decode(case["data"]))),
        "data": base64.b64encode(peer.encode(records)).decode(),
    }
    print(json.dumps(answer), flush=True)
