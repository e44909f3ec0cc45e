//! The stream: listed, split, merged, through the plain SDK.

use anyhow::Context as _;
use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::types::Shard;
use examples::until_active;

/// All shards, closed ones included.
pub(crate) async fn shards(client: &Client, name: &str) -> anyhow::Result<Vec<Shard>> {
    let mut shards = Vec::new();
    let mut request = client.list_shards().stream_name(name);
    loop {
        let page = request.send().await.map_err(|error| kinesis_core::aws::ServiceFailure::new(&error));
        let page = page.with_context(|| format!("ListShards of {name} failed"))?;
        shards.extend(page.shards.unwrap_or_default());
        match page.next_token {
            Some(token) => request = client.list_shards().next_token(token),
            None => return Ok(shards),
        }
    }
}

/// The open shards in order of their hash keys.
async fn open_shards(client: &Client, name: &str) -> anyhow::Result<Vec<(String, u128, u128)>> {
    let mut open = Vec::new();
    for shard in shards(client, name).await? {
        let closed =
            shard.sequence_number_range.as_ref().is_some_and(|range| range.ending_sequence_number.is_some());
        let range = shard.hash_key_range.context("a shard has no hash key range")?;
        if !closed {
            open.push((shard.shard_id, range.starting_hash_key.parse()?, range.ending_hash_key.parse()?));
        }
    }
    open.sort_by_key(|(_, start, _)| *start);
    Ok(open)
}

/// Splits the first open shard in the middle; returns its id.
pub(crate) async fn split_first(client: &Client, name: &str) -> anyhow::Result<String> {
    let open = open_shards(client, name).await?;
    let (shard, start, end) = open.first().context("the stream has no open shard")?;
    let middle = start + (end - start) / 2;
    let split = client
        .split_shard()
        .stream_name(name)
        .shard_to_split(shard)
        .new_starting_hash_key(middle.to_string());
    let done = split.send().await.map_err(|error| kinesis_core::aws::ServiceFailure::new(&error));
    done.with_context(|| format!("SplitShard of {name} failed"))?;
    until_active(client, name).await?;
    Ok(shard.clone())
}

/// Merges the last two open shards; returns their ids.
pub(crate) async fn merge_last(client: &Client, name: &str) -> anyhow::Result<(String, String)> {
    let open = open_shards(client, name).await?;
    let [.., (first, _, _), (second, _, _)] = &open[..] else {
        anyhow::bail!("the stream has no two open shards")
    };
    let merge = client.merge_shards().stream_name(name).shard_to_merge(first).adjacent_shard_to_merge(second);
    let done = merge.send().await.map_err(|error| kinesis_core::aws::ServiceFailure::new(&error));
    done.with_context(|| format!("MergeShards of {name} failed"))?;
    until_active(client, name).await?;
    Ok((first.clone(), second.clone()))
}
