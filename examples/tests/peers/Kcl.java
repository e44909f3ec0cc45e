import java.net.URI;
import java.time.Duration;
import java.util.UUID;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.CoordinatorConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.MetricsLevel;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/** A worker of the Kinesis Client Library 2 or 3 that says what it does, a line each, and stops when its input ends. */
public class Kcl {
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static final class Orders implements ShardRecordProcessor {
        private String shard;

        @Override
        public void initialize(InitializationInput input) {
            shard = input.shardId();
            say("start " + shard + " " + input.extendedSequenceNumber().sequenceNumber() + " "
                    + input.extendedSequenceNumber().subSequenceNumber());
        }

        @Override
        public void processRecords(ProcessRecordsInput input) {
            input.records().forEach(record -> {
                byte[] data = new byte[record.data().remaining()];
                record.data().get(data);
                say("record " + shard + " " + new String(data, java.nio.charset.StandardCharsets.UTF_8));
            });
            if (!input.records().isEmpty()) {
                try {
                    input.checkpointer().checkpoint();
                } catch (Exception error) {
                    say("checkpoint " + shard + " failed: " + error.getClass().getSimpleName());
                }
            }
        }

        @Override
        public void leaseLost(LeaseLostInput input) {
            say("lost " + shard);
        }

        @Override
        public void shardEnded(ShardEndedInput input) {
            try {
                input.checkpointer().checkpoint();
                say("end " + shard);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void shutdownRequested(ShutdownRequestedInput input) {
            say("asked " + shard);
        }
    }

    /** A setting that only version 3 has. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void setClientVersion(CoordinatorConfig config, String version) throws Exception {
        for (java.lang.reflect.Method method : CoordinatorConfig.class.getMethods()) {
            if (method.getName().equals("clientVersionConfig") && method.getParameterCount() == 1) {
                Class type = method.getParameterTypes()[0];
                for (Object value : type.getEnumConstants()) {
                    if (((Enum) value).name().equals(version)) {
                        method.invoke(config, value);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException(version);
    }

    public static void main(String[] args) throws Exception {
        URI kinesisUri = URI.create(args[0]);
        URI dynamoUri = URI.create(args[1]);
        String application = args[2];
        String stream = args[3];
        String worker = args[4];
        StaticCredentialsProvider credentials =
                StaticCredentialsProvider.create(AwsBasicCredentials.create("key", "secret"));
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder().endpointOverride(kinesisUri)
                .region(Region.US_EAST_1).credentialsProvider(credentials)
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1)).build();
        DynamoDbAsyncClient dynamo = DynamoDbAsyncClient.builder().endpointOverride(dynamoUri)
                .region(Region.US_EAST_1).credentialsProvider(credentials).build();
        CloudWatchAsyncClient metrics = CloudWatchAsyncClient.builder().endpointOverride(dynamoUri)
                .region(Region.US_EAST_1).credentialsProvider(credentials).build();
        ConfigsBuilder configs =
                new ConfigsBuilder(stream, application, kinesis, dynamo, metrics, worker, Orders::new);
        InitialPositionInStreamExtended oldest =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        CoordinatorConfig coordinator = configs.coordinatorConfig().parentShardPollIntervalMillis(500);
        if (args.length > 6) {
            setClientVersion(coordinator, args[6]);
        }
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(),
                coordinator,
                configs.leaseManagementConfig().failoverTimeMillis(Long.parseLong(args[5]))
                        .shardSyncIntervalMillis(1_000).initialPositionInStream(oldest),
                configs.lifecycleConfig(),
                configs.metricsConfig().metricsLevel(MetricsLevel.NONE),
                configs.processorConfig(),
                configs.retrievalConfig().initialPositionInStreamExtended(oldest)
                        .retrievalSpecificConfig(new PollingConfig(stream, kinesis)
                                .idleTimeBetweenReadsInMillis(300)));
        Thread thread = new Thread(scheduler);
        thread.setDaemon(true);
        thread.start();
        while (System.in.read() >= 0) {
            // Until the input ends.
        }
        boolean clean = scheduler.startGracefulShutdown().get(60, java.util.concurrent.TimeUnit.SECONDS);
        say("stopped " + clean);
        System.exit(0);
    }
}
