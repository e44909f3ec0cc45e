//! Guarded writes, and what becomes of those whose answer is lost.

use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use kinesis_core::Checkpoint;
use kinesis_core::lease::{Change, FieldWrite, Guard, Lease, LeaseKey, LeaseWrite, Outcome, StoreError};

use super::DynamoDbStore;
use super::error::{Failure, Kind};
use super::expression::{Expression, added_to_counter};
use super::item::{self, Item, KEY};

/// How one call ended that the service answered or did not.
enum Reply {
    /// Applied; the row as the service returns it, where it does.
    Done(Option<Item>),
    /// The condition did not hold; the row, where the service returns it.
    Refused(Option<Item>),
    Failed(Failure),
}

impl DynamoDbStore {
    pub(super) async fn write_all(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        let calls: Vec<BoxFuture<'_, Result<Outcome, StoreError>>> =
            writes.iter().map(|write| Box::pin(self.write_one(write)) as _).collect();
        stream::iter(calls).buffered(self.settings.max_concurrency).collect().await
    }

    async fn write_one(&self, write: &LeaseWrite) -> Result<Outcome, StoreError> {
        let key = self.settings.keys.render(&write.key)?;
        if write.guard == Guard::Absent && !matches!(write.change, Change::Create(_)) {
            // There is nothing to change in a row that is not there; the service would make one.
            let current = self.read_current(&key).await?;
            return Ok(Outcome::Refused { current: self.row(current.as_ref(), &write.key)? });
        }
        let mark = format!("{:016x}", fastrand::u64(..));
        let reply = match &write.change {
            Change::Create(lease) => self.put(&write.guard, lease, &mark).await?,
            Change::Update(fields) => self.update(&key, &write.guard, fields, &mark).await?,
            Change::Delete => self.delete(&key, &write.guard).await?,
            _ => {
                let problem = "the lease store does not know this kind of change";
                return Err(StoreError::misconfigured(problem, None));
            }
        };
        match reply {
            Reply::Done(row) => self.done(write, row.as_ref()),
            Reply::Refused(row) => {
                // There is no row, or a server that does not return it.
                let row = if row.is_some() { row } else { self.read_current(&key).await? };
                self.judge(write, &mark, row.as_ref())
            }
            Reply::Failed(failure) if failure.kind == Kind::Unavailable => {
                let lost = failure.into_store_error(&self.settings.table);
                self.settle(write, &key, &mark, lost).await
            }
            Reply::Failed(failure) if failure.kind == Kind::Invalid => {
                // An attribute of another type than it should have is refused as an invalid request.
                let refused = failure.into_store_error(&self.settings.table);
                let current = self.read_current(&key).await.map(|row| self.row(row.as_ref(), &write.key));
                match current {
                    Ok(Err(corrupt)) => Err(corrupt),
                    _ => Err(refused),
                }
            }
            Reply::Failed(failure) => Err(failure.into_store_error(&self.settings.table)),
        }
    }

    /// The outcome of a write that the service says it has applied.
    fn done(&self, write: &LeaseWrite, row: Option<&Item>) -> Result<Outcome, StoreError> {
        let (key, keys) = (write.key.clone(), &self.settings.keys);
        match (&write.change, row) {
            (Change::Create(lease), _) => Ok(Outcome::Applied((**lease).clone())),
            // A row that could not be read is gone all the same.
            (Change::Delete, Some(row)) => {
                let bare = Lease::new(key.clone(), Checkpoint::TrimHorizon);
                Ok(Outcome::Applied(item::read(row, key, keys).unwrap_or(bare)))
            }
            (_, Some(row)) => item::read(row, key, keys).map(Outcome::Applied),
            (_, None) => Err(StoreError::unavailable("DynamoDB did not return the row that was written")),
        }
    }

    /// Whether a write was applied whose answer is lost. A row that still lets it pass says nothing: the request may
    /// be on its way.
    async fn settle(
        &self,
        write: &LeaseWrite,
        key: &str,
        mark: &str,
        lost: StoreError,
    ) -> Result<Outcome, StoreError> {
        let Ok(row) = self.read_current(key).await else { return Err(lost) };
        match self.judge(write, mark, row.as_ref())? {
            Outcome::Refused { current } if write.guard.check(current.as_ref()) => Err(lost),
            outcome => Ok(outcome),
        }
    }

    /// A refusal, unless the row shows that this very write is its last: then the request was applied the first time
    /// that it was sent.
    fn judge(&self, write: &LeaseWrite, mark: &str, row: Option<&Item>) -> Result<Outcome, StoreError> {
        let current = self.row(row, &write.key)?;
        match current {
            Some(current) if row.and_then(item::mark_of) == Some(mark) && is_last(write, &current) => {
                Ok(Outcome::Applied(current))
            }
            current => Ok(Outcome::Refused { current }),
        }
    }

    fn row(&self, row: Option<&Item>, key: &LeaseKey) -> Result<Option<Lease>, StoreError> {
        row.map(|row| item::read(row, key.clone(), &self.settings.keys)).transpose()
    }

    async fn put(&self, guard: &Guard, lease: &Lease, mark: &str) -> Result<Reply, StoreError> {
        let expression = Expression::guarded(guard)?;
        let call = self
            .client
            .put_item()
            .table_name(&self.settings.table)
            .set_item(Some(item::write(lease, &self.settings.keys, mark)?))
            .condition_expression(&expression.condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(match Box::pin(call.send()).await {
            Ok(_) => Reply::Done(None),
            Err(error) => refused_or_failed(&error, |error| match error {
                PutItemError::ConditionalCheckFailedException(refusal) => Some(refusal.item.clone()),
                _ => None,
            }),
        })
    }

    async fn update(
        &self,
        key: &str,
        guard: &Guard,
        fields: &[FieldWrite],
        mark: &str,
    ) -> Result<Reply, StoreError> {
        let expression = Expression::update(guard, fields, mark, &self.settings.keys.layout)?;
        let call = self
            .client
            .update_item()
            .table_name(&self.settings.table)
            .key(KEY, item::text(key))
            .condition_expression(&expression.condition)
            .update_expression(&expression.update)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(match Box::pin(call.send()).await {
            Ok(answer) => Reply::Done(answer.attributes),
            Err(error) => refused_or_failed(&error, |error| match error {
                UpdateItemError::ConditionalCheckFailedException(refusal) => Some(refusal.item.clone()),
                _ => None,
            }),
        })
    }

    async fn delete(&self, key: &str, guard: &Guard) -> Result<Reply, StoreError> {
        let expression = Expression::guarded(guard)?;
        let call = self
            .client
            .delete_item()
            .table_name(&self.settings.table)
            .key(KEY, item::text(key))
            .condition_expression(&expression.condition)
            .set_expression_attribute_names(expression.names())
            .set_expression_attribute_values(expression.values())
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(match Box::pin(call.send()).await {
            Ok(answer) => Reply::Done(answer.attributes),
            Err(error) => refused_or_failed(&error, |error| match error {
                DeleteItemError::ConditionalCheckFailedException(refusal) => Some(refusal.item.clone()),
                _ => None,
            }),
        })
    }
}

/// Whether nothing has counted on since this write.
fn is_last(write: &LeaseWrite, current: &Lease) -> bool {
    let before = match &write.guard {
        Guard::Counter(counter)
        | Guard::CounterNoHandoff(counter)
        | Guard::OwnerCounter { counter, .. }
        | Guard::Tenure { counter, .. } => *counter,
        _ => return true,
    };
    let Change::Update(fields) = &write.change else { return true };
    current.counter == before.saturating_add(added_to_counter(fields))
}

/// The row that comes with a refusal, or the failure.
fn refused_or_failed<E>(
    error: &SdkError<E, HttpResponse>,
    refusal: impl Fn(&E) -> Option<Option<Item>>,
) -> Reply
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match error.as_service_error().and_then(refusal) {
        Some(row) => Reply::Refused(row),
        None => Reply::Failed(Failure::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use kinesis_core::lease::TenureToken;
    use kinesis_core::{ApplicationName, ShardId, StreamRef};

    use super::*;

    fn lease(counter: u64) -> Lease {
        let application = ApplicationName::new("billing").unwrap();
        let key =
            LeaseKey::new(application, StreamRef::new("orders").unwrap(), ShardId::new("shard").unwrap());
        let mut lease = Lease::new(key, Checkpoint::Latest);
        lease.counter = counter;
        lease
    }

    /// Java adds to the counter and leaves our mark: our write was applied then, but is not the last.
    #[test]
    fn a_write_is_the_last_one_while_nobody_has_counted_on() {
        let token = TenureToken::from_random(1);
        let fields = vec![FieldWrite::AddCounter(1), FieldWrite::AddCounter(1)];
        let write = |guard| LeaseWrite::new(lease(5).key, guard, Change::Update(fields.clone()));
        for guard in [
            Guard::Counter(5),
            Guard::CounterNoHandoff(5),
            Guard::OwnerCounter { owner: None, counter: 5 },
            Guard::Tenure { counter: 5, token },
        ] {
            assert!(is_last(&write(guard.clone()), &lease(7)));
            assert!(!is_last(&write(guard.clone()), &lease(8)), "somebody was later");
            assert!(!is_last(&write(guard), &lease(5)));
        }
        assert!(is_last(&write(Guard::Exists), &lease(9)), "the mark alone tells");
    }
}
