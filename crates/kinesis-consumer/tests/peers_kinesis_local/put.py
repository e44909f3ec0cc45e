"""Puts records FIRST to LAST into a stream and prints, for each: sequence number, shard, partition key, data in hex.

usage: put.py STREAM FIRST LAST PAUSE    (PAUSE in seconds between the calls)
"""

import os
import random
import sys
import time

import boto3

BATCH = 25


def record(number, chance):
    """A record whose first four bytes are its number."""
    data = number.to_bytes(4, "big") + chance.randbytes(chance.choice([0, 1, 255, 300, 5000]))
    if number % 9 == 0:
        # Anywhere in the stream, whatever its key.
        hash_key = str(chance.randrange(2**128))
        return {"PartitionKey": "anywhere", "ExplicitHashKey": hash_key, "Data": data}
    return {"PartitionKey": f"Zürich {number % 13}", "Data": data}


def shown(put, reply):
    print(reply["SequenceNumber"], reply["ShardId"], put["PartitionKey"], put["Data"].hex(), sep="\t", flush=True)


def main():
    stream, first, last, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    client = boto3.client(
        "kinesis",
        endpoint_url=os.environ["KINESIS_LOCAL_ENDPOINT"],
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    chance = random.Random(first)
    numbers = range(first, last + 1)
    for start in range(0, len(numbers), BATCH):
        records = [record(number, chance) for number in numbers[start : start + BATCH]]
        # The first of each batch goes alone, by the other operation.
        alone, together = records[0], records[1:]
        shown(alone, client.put_record(StreamName=stream, **alone))
        if together:
            reply = client.put_records(StreamName=stream, Records=together)
            if reply["FailedRecordCount"]:
                sys.exit("the server refused records")
            for put, result in zip(together, reply["Records"]):
                shown(put, result)
        time.sleep(pause)


main()
