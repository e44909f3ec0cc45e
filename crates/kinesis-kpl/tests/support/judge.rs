//! User records in plain values: as prost has them, and as we have them.

use crate::proto::{AggregatedRecord, Record};

/// A user record in plain values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) partition_key: String,
    pub(crate) explicit_hash_key: Option<String>,
    pub(crate) data: Vec<u8>,
    pub(crate) tags: Vec<(String, Option<String>)>,
}

impl AggregatedRecord {
    /// The user records by the rules of the format; `None` when a required field is missing or an index is out of
    /// range.
    pub(crate) fn user_records(&self) -> Option<Vec<Plain>> {
        let entry = |table: &[String], index: u64| table.get(usize::try_from(index).ok()?).cloned();
        let record = |record: &Record| {
            Some(Plain {
                partition_key: entry(&self.partition_key_table, record.partition_key_index?)?,
                explicit_hash_key: match record.explicit_hash_key_index {
                    Some(index) => Some(entry(&self.explicit_hash_key_table, index)?),
                    None => None,
                },
                data: record.data.clone()?,
                tags: record
                    .tags
                    .iter()
                    .map(|tag| Some((tag.key.clone()?, tag.value.clone())))
                    .collect::<Option<_>>()?,
            })
        };
        self.records.iter().map(record).collect()
    }
}

/// Our user records in the same plain values.
pub(crate) fn plain<B: AsRef<[u8]>>(aggregate: &kinesis_kpl::Aggregate<B>) -> Vec<Plain> {
    let record = |record: kinesis_kpl::RecordView<'_>| Plain {
        partition_key: record.partition_key().to_owned(),
        explicit_hash_key: record.explicit_hash_key().map(str::to_owned),
        data: record.data().to_vec(),
        tags: record.tags().map(|tag| (tag.key.to_owned(), tag.value.map(str::to_owned))).collect(),
    };
    aggregate.iter().map(record).collect()
}
