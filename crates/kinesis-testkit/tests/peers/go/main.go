// Drives a Kinesis endpoint with the defaults of the AWS SDK for Go v2: create, put, read, subscribe, reshard.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"math/big"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// wait looks until what it sees is true.
func wait(look func() bool) {
	for tries := 0; tries < 200; tries++ {
		if look() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	log.Fatal("not in time")
}

func main() {
	ctx := context.Background()
	cfg := must(config.LoadDefaultConfig(ctx,
		config.WithRegion("us-east-1"),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("AKID", "secret", ""))))
	client := kinesis.NewFromConfig(cfg, func(o *kinesis.Options) { o.BaseEndpoint = aws.String(os.Args[1]) })
	stream := aws.String("go")

	must(client.CreateStream(ctx, &kinesis.CreateStreamInput{StreamName: stream, ShardCount: aws.Int32(1)}))
	summary := func() *types.StreamDescriptionSummary {
		input := &kinesis.DescribeStreamSummaryInput{StreamName: stream}
		return must(client.DescribeStreamSummary(ctx, input)).StreamDescriptionSummary
	}
	wait(func() bool { return summary().StreamStatus == types.StreamStatusActive })

	one := []byte{0, 111, 255}
	put := &kinesis.PutRecordInput{StreamName: stream, PartitionKey: aws.String("k"), Data: one}
	must(client.PutRecord(ctx, put))
	var entries []types.PutRecordsRequestEntry
	for n := 0; n < 3; n++ {
		entries = append(entries, types.PutRecordsRequestEntry{PartitionKey: aws.String("k"), Data: []byte{byte(n)}})
	}
	result := must(client.PutRecords(ctx, &kinesis.PutRecordsInput{StreamName: stream, Records: entries}))
	if *result.FailedRecordCount != 0 {
		log.Fatal("entries were refused")
	}

	list := func() []types.Shard {
		return must(client.ListShards(ctx, &kinesis.ListShardsInput{StreamName: stream})).Shards
	}
	shard := list()[0].ShardId
	iterator := must(client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: stream, ShardId: shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}))
	read := must(client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator.ShardIterator})).Records
	if !bytes.Equal(read[0].Data, one) || time.Since(*read[0].ApproximateArrivalTimestamp).Abs() > time.Minute {
		log.Fatal("the record differs")
	}

	consumer := must(client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{
		StreamARN: summary().StreamARN, ConsumerName: aws.String("app")})).Consumer.ConsumerARN
	wait(func() bool {
		input := &kinesis.DescribeStreamConsumerInput{ConsumerARN: consumer}
		described := must(client.DescribeStreamConsumer(ctx, input)).ConsumerDescription
		return described.ConsumerStatus == types.ConsumerStatusActive
	})
	subscription := must(client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: consumer, ShardId: shard,
		StartingPosition: &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon}})).GetStream()
	pushed, children, split := 0, 0, false
	for message := range subscription.Events() {
		event := message.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
		pushed += len(event.Records)
		children += len(event.ChildShards)
		if pushed == len(read) && !split {
			split = true
			half := new(big.Int).Lsh(big.NewInt(1), 127).String()
			must(client.SplitShard(ctx, &kinesis.SplitShardInput{
				StreamName: stream, ShardToSplit: shard, NewStartingHashKey: &half}))
		}
	}
	if err := subscription.Close(); err != nil {
		log.Fatal(err)
	}
	if err := subscription.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("read %d pushed %d children %d shards %d\n", len(read), pushed, children, len(list()))
}
