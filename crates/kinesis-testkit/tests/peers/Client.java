import java.math.BigInteger;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ConsumerStatus;
import software.amazon.awssdk.services.kinesis.model.PutRecordsRequestEntry;
import software.amazon.awssdk.services.kinesis.model.Record;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.StreamStatus;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/** Drives a Kinesis endpoint with the defaults of the AWS SDK for Java v2: create, put, read, subscribe, reshard. */
public class Client {
    private static final String STREAM = "java";

    /** Looks until the status is the one that is wanted. */
    static void waitFor(Supplier<Object> look, Object wanted) throws InterruptedException {
        for (int tries = 0; tries < 200; tries++) {
            if (look.get().equals(wanted)) {
                return;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("not " + wanted + " in time");
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    public static void main(String[] args) throws Exception {
        KinesisAsyncClient client = KinesisAsyncClient.builder()
                .endpointOverride(URI.create(args[0]))
                .region(Region.US_EAST_1)
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("AKID", "secret")))
                .build();
        client.createStream(request -> request.streamName(STREAM).shardCount(1)).join();
        waitFor(() -> client.describeStreamSummary(request -> request.streamName(STREAM)).join()
                .streamDescriptionSummary().streamStatus(), StreamStatus.ACTIVE);
        String streamArn = client.describeStreamSummary(request -> request.streamName(STREAM)).join()
                .streamDescriptionSummary().streamARN();

        byte[] one = {0, 111, -1};
        client.putRecord(request -> request.streamName(STREAM).partitionKey("k").data(SdkBytes.fromByteArray(one)))
                .join();
        List<PutRecordsRequestEntry> entries = IntStream.range(0, 3)
                .mapToObj(n -> PutRecordsRequestEntry.builder().partitionKey("k")
                        .data(SdkBytes.fromUtf8String(Integer.toString(n))).build())
                .toList();
        int failed = client.putRecords(request -> request.streamName(STREAM).records(entries)).join()
                .failedRecordCount();
        check(failed == 0, "entries were refused");

        String shard = client.listShards(request -> request.streamName(STREAM)).join().shards().get(0).shardId();
        String iterator = client.getShardIterator(request -> request.streamName(STREAM).shardId(shard)
                .shardIteratorType(ShardIteratorType.AT_TIMESTAMP).timestamp(Instant.now().minusSeconds(60))).join()
                .shardIterator();
        List<Record> read = client.getRecords(request -> request.shardIterator(iterator)).join().records();
        check(java.util.Arrays.equals(read.get(0).data().asByteArray(), one), "the data differ");
        Duration age = Duration.between(read.get(0).approximateArrivalTimestamp(), Instant.now());
        check(age.abs().toSeconds() < 60, "the arrival time is " + age + " off");

        String consumer = client.registerStreamConsumer(request -> request.streamARN(streamArn).consumerName("app"))
                .join().consumer().consumerARN();
        waitFor(() -> client.describeStreamConsumer(request -> request.consumerARN(consumer)).join()
                .consumerDescription().consumerStatus(), ConsumerStatus.ACTIVE);
        AtomicInteger pushed = new AtomicInteger();
        AtomicInteger children = new AtomicInteger();
        AtomicBoolean split = new AtomicBoolean();
        SubscribeToShardResponseHandler handler = SubscribeToShardResponseHandler.builder()
                .subscriber(message -> {
                    if (message instanceof SubscribeToShardEvent event) {
                        pushed.addAndGet(event.records().size());
                        children.addAndGet(event.childShards().size());
                        if (pushed.get() == read.size() && split.compareAndSet(false, true)) {
                            client.splitShard(request -> request.streamName(STREAM).shardToSplit(shard)
                                    .newStartingHashKey(BigInteger.TWO.pow(127).toString()));
                        }
                    }
                })
                .build();
        CompletableFuture<Void> subscription = client.subscribeToShard(request -> request.consumerARN(consumer)
                .shardId(shard).startingPosition(start -> start.type(ShardIteratorType.TRIM_HORIZON)), handler);
        subscription.join();
        int shards = client.listShards(request -> request.streamName(STREAM)).join().shards().size();
        System.out.println("read " + read.size() + " pushed " + pushed + " children " + children + " shards " + shards);
        client.close();
    }
}
