//! Which of our rows are compared with which of the peers'.

use super::Row;

pub(super) const NODE: &str = "node";
pub(super) const PYTHON: &str = "python";

/// Our row and the peers' row that does the same work.
const PAIRS: &[(&str, &str)] = &[
    ("deagg_view_100b", "deagg_100b"),
    ("deagg_owned_100b", "deagg_100b"),
    ("aggregate_100b", "aggregate_100b"),
    ("deagg_view_1kb", "deagg_1kb"),
    ("deagg_owned_1kb", "deagg_1kb"),
    ("aggregate_1kb", "aggregate_1kb"),
];

/// Keeps the faster of two measurements of the same case.
pub(super) fn keep_best(rows: &mut [Row], again: Vec<Row>) {
    for other in again {
        if let Some(row) = rows.iter_mut().find(|row| row.name == other.name)
            && other.mb_per_s > row.mb_per_s
        {
            *row = other;
        }
    }
}

/// Our rows, the peers' own rows (`node_deagg_100b`), and ours compared with them (`deagg_view_100b_vs_node`).
pub(super) fn with_peers(own: Vec<Row>, peers: &[(&str, Vec<Row>)]) -> Vec<Row> {
    let mut all = own;
    for (peer, rows) in peers {
        all.extend(rows.iter().map(|row| Row { name: format!("{peer}_{}", row.name), ..row.clone() }));
    }
    for (ours, theirs) in PAIRS {
        let Some(row) = all.iter().find(|row| row.name == *ours).cloned() else { continue };
        for (peer, rows) in peers {
            let Some(other) = rows.iter().find(|row| row.name == *theirs) else { continue };
            all.push(Row {
                name: format!("{ours}_vs_{peer}"),
                // Records, not bytes: the aggregates of two writers differ by a few bytes.
                ratio: Some(row.records_per_s / other.records_per_s),
                against: Some(format!("{peer}_{theirs}")),
                ..row.clone()
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, records_per_s: f64) -> Row {
        Row {
            name: name.to_owned(),
            mb_per_s: records_per_s / 10.0,
            records_per_s,
            ratio: None,
            against: None,
            shrink: None,
            peak_mb: None,
        }
    }

    #[test]
    fn our_rows_are_compared_with_the_best_of_each_peer() {
        let mut node = vec![row("deagg_100b", 100.0)];
        keep_best(&mut node, vec![row("deagg_100b", 200.0), row("other", 1.0)]);
        keep_best(&mut node, vec![row("deagg_100b", 150.0)]);
        let all = with_peers(vec![row("deagg_view_100b", 600.0)], &[(NODE, node)]);
        let names: Vec<&str> = all.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["deagg_view_100b", "node_deagg_100b", "deagg_view_100b_vs_node"]);
        assert_eq!(all[2].ratio, Some(3.0));
        assert_eq!(all[2].against.as_deref(), Some("node_deagg_100b"));
    }
}
