//! Checkpoints inside of a user's transaction.

use kinesis_core::Position;
use kinesis_core::lease::{Fence, StoreError};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, Transaction};

use super::{Pooler, PostgresStore};

/// Why a checkpoint was not written into a transaction. After each of these the transaction is aborted: whatever it has
/// done is rolled back, also when it is committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointInError {
    /// The lease is not ours any more: its new owner repeats the work.
    #[error("the lease is lost")]
    LeaseLost,
    /// The position is stored already: a transaction with the effects of these records was committed before (perhaps
    /// the reply to its commit was lost). They must not be written twice.
    #[error("position {position} is stored already")]
    #[non_exhaustive]
    AlreadyStored {
        /// The refused position.
        position: Position,
    },
    /// The database failed.
    #[error("the checkpoint could not be written")]
    Store(#[source] StoreError),
}

impl CheckpointInError {
    /// Whether the whole transaction can succeed when it is repeated.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::LeaseLost | Self::AlreadyStored { .. } => false,
            Self::Store(error) => error.is_retryable(),
        }
    }
}

/// The comparison of stored and new position: digits as numbers, and words as before every number.
const IS_BEHIND: &str = "CASE WHEN checkpoint ~ '^[0-9]+$'
    THEN (checkpoint::numeric, sub_sequence) < ($4::text::numeric, $5::bigint) ELSE true END";

impl PostgresStore {
    /// Moves the checkpoint of a lease to `position` inside of the transaction that writes the results of the records
    /// up to there, so that both are kept or neither is: effects are exactly once. `fence` is that of the batch.
    ///
    /// Call it last: from then on until the end of the transaction a worker that takes the lease over has to wait (at
    /// most its [`lock_timeout`](super::PostgresStoreBuilder::lock_timeout)). Renewals never wait.
    ///
    /// The transaction may be one of any pool, as long as it is one of this store's database. For a consumer, set
    /// `checkpoints` to `Transactional`: then nothing else moves the checkpoint.
    ///
    /// # Errors
    /// [`CheckpointInError::LeaseLost`] when another worker has taken the lease, or the end of the shard is stored;
    /// [`CheckpointInError::AlreadyStored`] when the stored position is this one or a later one. Both abort the
    /// transaction. Dropping the future leaves the transaction unusable.
    pub async fn checkpoint_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        fence: &Fence,
        position: &Position,
    ) -> Result<(), CheckpointInError> {
        let failed = |error| CheckpointInError::Store(self.failed(error));
        let table = &self.tables.checkpoints;
        let update = format!(
            "UPDATE {table} SET checkpoint = $4, sub_sequence = $5, pending = NULL, pending_sub_sequence = NULL,
                 pending_state = NULL
             WHERE application = $1 AND stream = $2 AND shard = $3 AND epoch = $6 AND checkpoint <> 'SHARD_END'
                 AND {IS_BEHIND}"
        );
        let moved = self.bound(update, fence, position).execute(&mut **transaction).await.map_err(failed)?;
        if moved.rows_affected() == 1 {
            return Ok(());
        }
        // Only to say why: whatever it is now, nothing was written.
        let select = format!(
            "SELECT epoch = $6 AND checkpoint <> 'SHARD_END' AND NOT ({IS_BEHIND}) FROM {table}
             WHERE application = $1 AND stream = $2 AND shard = $3"
        );
        let row = self.bound(select, fence, position).fetch_optional(&mut **transaction).await;
        let ours = row.map_err(failed)?.is_some_and(|row| row.try_get(0).unwrap_or(false));
        abort(transaction).await;
        Err(if ours {
            CheckpointInError::AlreadyStored { position: position.clone() }
        } else {
            CheckpointInError::LeaseLost
        })
    }

    fn bound<'q>(
        &self,
        statement: String,
        fence: &Fence,
        position: &Position,
    ) -> Query<'q, Postgres, PgArguments> {
        let key = fence.key();
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        // Constants and a validated name.
        sqlx::query(AssertSqlSafe(statement))
            .persistent(self.settings.pooler == Pooler::Direct)
            .bind(key.application().as_str().to_owned())
            .bind(key.stream().as_str().to_owned())
            .bind(key.shard().as_str().to_owned())
            .bind(position.sequence().to_string())
            .bind(number(position.sub_sequence()))
            .bind(number(fence.epoch()))
    }
}

/// Makes the server refuse everything but a rollback, so that a caller who overlooks the error commits nothing.
async fn abort(connection: &mut PgConnection) {
    let refused = sqlx::raw_sql("SELECT 'the checkpoint was refused: roll back'::integer");
    // It fails, which is what it is for.
    drop(refused.execute(connection).await);
}
