//! Rows by key and page by page.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::operation::scan::ScanOutput;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kinesis_core::backoff::{Backoff, BackoffConfig};
use kinesis_core::lease::{Lease, LeaseKey, ScanPage, ScanRequest, StoreError};

use super::DynamoDbStore;
use super::cursor::{Cursor, Progress};
use super::item::{self, Item, KEY};
use super::layout::Filter;

/// The most rows that one BatchGetItem returns
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html>).
const BATCH: usize = 100;

/// The delays before rows are asked for again that the service had no capacity for.
const UNPROCESSED_RETRY: BackoffConfig =
    BackoffConfig::new(Duration::from_millis(50), Duration::from_millis(400));

/// How often they are asked for before the caller hears of it.
const UNPROCESSED_TRIES: u32 = 4;

impl DynamoDbStore {
    pub(super) async fn read_rows(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        let texts = keys.iter().map(|key| self.settings.keys.render(key)).collect::<Result<Vec<_>, _>>()?;
        // The service refuses a request that names a key twice.
        let distinct: Vec<String> = texts.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect();
        let batches: Vec<BoxFuture<'_, Result<Vec<Item>, StoreError>>> =
            distinct.chunks(BATCH).map(|batch| Box::pin(self.read_batch(batch)) as _).collect();
        let batches = stream::iter(batches).buffer_unordered(self.settings.max_concurrency);
        let batches: Vec<Vec<Item>> = batches.try_collect().await?;
        let rows: HashMap<&str, &Item> =
            batches.iter().flatten().filter_map(|row| Some((item::key_of(row)?, row))).collect();
        let found = texts.iter().zip(keys).map(|(text, key)| {
            rows.get(text.as_str()).map(|row| item::read(row, key.clone(), &self.settings.keys)).transpose()
        });
        found.collect()
    }

    async fn read_batch(&self, keys: &[String]) -> Result<Vec<Item>, StoreError> {
        let mut asked: Vec<Item> =
            keys.iter().map(|key| Item::from([(KEY.to_owned(), item::text(key))])).collect();
        let mut found = Vec::new();
        let mut backoff = Backoff::new(UNPROCESSED_RETRY, fastrand::u64(..));
        loop {
            let keys = KeysAndAttributes::builder()
                .set_keys(Some(asked))
                .consistent_read(self.settings.consistent_reads)
                .build()
                .map_err(|error| StoreError::misconfigured("no keys to read", Some(Box::new(error))))?;
            let call = self.client.batch_get_item().request_items(&self.settings.table, keys);
            let answer = Box::pin(call.send()).await.map_err(|error| self.failed(&error))?;
            found.extend(answer.responses.into_iter().flatten().flat_map(|(_, rows)| rows));
            let left = answer.unprocessed_keys.into_iter().flatten();
            asked = left.flat_map(|(_, keys)| keys.keys).collect();
            if asked.is_empty() {
                return Ok(found);
            }
            if backoff.failures() == UNPROCESSED_TRIES {
                return Err(StoreError::throttled(
                    None,
                    "DynamoDB leaves rows of a BatchGetItem unprocessed",
                ));
            }
            tokio::time::sleep(backoff.next_delay()).await;
        }
    }

    /// One row as it is now.
    pub(super) async fn read_current(&self, key: &str) -> Result<Option<Item>, StoreError> {
        let call = self.client.get_item().table_name(&self.settings.table).key(KEY, item::text(key));
        let answer =
            Box::pin(call.consistent_read(true).send()).await.map_err(|error| self.failed(&error))?;
        Ok(answer.item)
    }

    pub(super) async fn read_page(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        // The caller's segment is divided further only when it is the whole table.
        let (first, parts, total) = if request.segments > 1 {
            (request.segment, 1, request.segments)
        } else if request.segment > 0 {
            return Ok(ScanPage::default());
        } else {
            (0, self.settings.scan_segments, self.settings.scan_segments)
        };
        let foreign = || StoreError::misconfigured("the scan cursor is not one of this store", None);
        let mut cursor = match &request.cursor {
            None => Cursor::start(parts),
            Some(text) => Cursor::parse(text, parts).ok_or_else(foreign)?,
        };
        let filter = self.settings.keys.filter(request)?;
        let mut scans: Vec<BoxFuture<'_, Result<(u32, ScanOutput), StoreError>>> = Vec::new();
        for (part, limit) in cursor.next(request.limit) {
            let segment = Segment { number: first + part, total, limit };
            let progress = cursor.0[part as usize].clone();
            let filter = &filter;
            scans.push(Box::pin(
                async move { Ok((part, self.scan_segment(segment, progress, filter).await?)) },
            ));
        }
        let scans = stream::iter(scans).buffered(self.settings.max_concurrency);
        let answers: Vec<(u32, ScanOutput)> = scans.try_collect().await?;

        let mut page = ScanPage::default();
        for (part, answer) in answers {
            let last = answer.last_evaluated_key().and_then(item::key_of).map(str::to_owned);
            cursor.0[part as usize] = last.map_or(Progress::Done, Progress::After);
            for found in answer.items.into_iter().flatten().filter(item::is_lease) {
                self.add_row(&mut page, &found, request)?;
            }
        }
        page.cursor = cursor.render();
        Ok(page)
    }

    fn add_row(&self, page: &mut ScanPage, found: &Item, request: &ScanRequest) -> Result<(), StoreError> {
        let key = item::key_of(found).and_then(|text| self.settings.keys.parse(text, request));
        let Some(key) = key else { return Ok(()) };
        match item::read(found, key, &self.settings.keys) {
            Ok(lease) => page.leases.push(lease),
            Err(corrupt @ StoreError::Corrupt { .. }) => page.unreadable.push(corrupt),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn scan_segment(
        &self,
        segment: Segment,
        progress: Progress,
        filter: &Filter,
    ) -> Result<ScanOutput, StoreError> {
        let mut call = self
            .client
            .scan()
            .table_name(&self.settings.table)
            .consistent_read(self.settings.consistent_reads)
            .limit(i32::try_from(segment.limit).unwrap_or(i32::MAX));
        if segment.total > 1 {
            let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
            call = call.segment(number(segment.number)).total_segments(number(segment.total));
        }
        if let Progress::After(key) = progress {
            call = call.exclusive_start_key(KEY, item::text(&key));
        }
        let filtered = match filter {
            Filter::All => None,
            Filter::KeyPrefix(prefix) => Some((KEY, "begins_with(#n, :v)", prefix)),
            Filter::StreamName(name) => Some((item::STREAM_NAME, "#n = :v", name)),
        };
        if let Some((attribute, expression, value)) = filtered {
            call = call
                .filter_expression(expression)
                .expression_attribute_names("#n", attribute)
                .expression_attribute_values(":v", AttributeValue::S(value.clone()));
        }
        Box::pin(call.send()).await.map_err(|error| self.failed(&error))
    }
}

/// What one call of a scan reads.
#[derive(Debug, Clone, Copy)]
struct Segment {
    number: u32,
    total: u32,
    limit: usize,
}
