//! Which way of sharing leases a table needs, and whether that changes while we run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;

use super::boot::{Parts, Stage, start_error};
use super::calls::{Calls, Failure, limited};
use super::now;
use crate::{
    ConfigError, Coordination, LeaseConfig, LeaseWarning, Regime, RegimeProbe, RegimeSighting, StartError,
    TableTenants,
};

/// The probe makes some calls one after the other.
const CALLS: u32 = 5;

/// What came of one look, and of the metrics that were published with it.
pub(super) struct RegimeLook {
    found: Result<RegimeSighting, Failure>,
    published: Result<(), Failure>,
}

/// Looks now and then at who shares out the leases.
#[derive(Debug)]
pub(super) struct RegimeWatch {
    probe: Arc<dyn RegimeProbe>,
    worker: WorkerId,
    interval: Duration,
    publish: bool,
    /// How long one look may take.
    limit: Duration,
    /// `None` while a look is under way, or when there is nothing more to find out.
    next: Option<Instant>,
    /// What was last warned of.
    told: Option<RegimeSighting>,
    /// Whether the last look failed.
    failing: bool,
    first: Vec<LeaseWarning>,
}

/// Finds out how leases are shared, and who shares them out.
///
/// # Errors
/// [`StartError::Coordination`] when the setting contradicts the table, [`StartError::Regime`] when a leader shares out
/// the leases, [`StartError::Store`] when the table cannot be looked at.
pub(super) async fn look_around(
    parts: &Parts,
    calls: &Calls,
    probe: Option<Arc<dyn RegimeProbe>>,
) -> Stage<(Coordination, Option<RegimeWatch>)> {
    let setting = parts.config.coordination;
    // A store that knows nothing of the KCL is ours alone, unless it is told otherwise.
    let Some(probe) = probe else { return Ok((setting.unwrap_or_default(), None)) };
    let limit = calls.timeout * CALLS;
    let tenants = calls.tenants(&probe, parts.seed).await.map_err(start_error)?;
    let coordination = settle(setting, &tenants)?;
    parts.config.check_coordination(coordination)?;
    check_beat(&parts.config, &tenants)?;
    tracing::info!(%coordination, reason = tenants.kcl_lease, "how leases are shared");
    if !tenants.shared {
        return Ok((coordination, None));
    }
    let mut watch = RegimeWatch {
        probe,
        worker: parts.worker.clone(),
        interval: parts.config.regime_interval,
        publish: parts.config.publish_worker_metrics,
        limit,
        next: None,
        told: None,
        failing: false,
        first: Vec::new(),
    };
    let look = watch.look().await;
    match watch.judge(now(), look) {
        Ok(warnings) => watch.first = warnings,
        Err(leader) => return Err(StartError::Regime(leader)),
    }
    Ok((coordination, Some(watch)))
}

/// The setting, or what the table needs.
fn settle(setting: Option<Coordination>, tenants: &TableTenants) -> Stage<Coordination> {
    match (setting, &tenants.kcl_lease) {
        (Some(setting @ Coordination::KclCompatible), _) if !tenants.shared => {
            let found = "the layout of its keys is not the KCL's, so that no worker of the KCL can use it; set one of the \
                         KCL's layouts, or leave the setting out";
            Err(StartError::Coordination { setting, found: found.to_owned() })
        }
        (Some(setting @ Coordination::Native), Some(lease)) => {
            let found = format!("{lease}; set kcl_compatible, or leave the setting out");
            Err(StartError::Coordination { setting, found })
        }
        (Some(setting), _) => Ok(setting),
        (None, Some(_)) => Ok(Coordination::KclCompatible),
        (None, None) => Ok(Coordination::Native),
    }
}

/// Whether the table may have rows of workers: one of the KCL that joins later would take them for leases.
fn check_beat(config: &LeaseConfig, tenants: &TableTenants) -> Stage<()> {
    if config.worker_heartbeat && tenants.shared {
        let problem = "needs a table in this library's own layout, with coordination = native: workers of the KCL could \
                       use this one";
        return Err(ConfigError::new("worker_heartbeat", problem).into());
    }
    Ok(())
}

impl RegimeWatch {
    /// When to look next.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next
    }

    /// What there was to say at the start.
    pub(super) fn first_warnings(&mut self) -> Vec<LeaseWarning> {
        std::mem::take(&mut self.first)
    }

    /// The look that is due.
    pub(super) fn look_if_due(
        &mut self,
        now: Instant,
    ) -> Option<Pin<Box<dyn Future<Output = RegimeLook> + Send>>> {
        self.next.take_if(|next| *next <= now)?;
        Some(self.look())
    }

    fn look(&self) -> Pin<Box<dyn Future<Output = RegimeLook> + Send>> {
        let (probe, worker, limit) = (Arc::clone(&self.probe), self.worker.clone(), self.limit);
        let publish = self.publish;
        Box::pin(async move {
            let found = limited(limit, probe.regime()).await;
            let published = match found.as_ref().map(|found| &found.regime) {
                Ok(Regime::Takers | Regime::Upgrading) if publish => {
                    limited(limit, probe.publish(&worker)).await
                }
                // A leader gives leases to whoever has metrics.
                Ok(Regime::Leader) if publish => limited(limit, probe.retire(&worker)).await,
                _ => Ok(()),
            };
            RegimeLook { found, published }
        })
    }

    /// What a look means: what is to be warned of, or that a leader shares out the leases.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        look: RegimeLook,
    ) -> Result<Vec<LeaseWarning>, RegimeSighting> {
        let mut warnings = Vec::new();
        let failure = look.published.err().into_iter();
        let mut failures: Vec<Failure> = failure.collect();
        match look.found {
            Ok(found) => {
                if self.is_led(&found) {
                    self.next = None;
                    return Err(found);
                }
                let is_news = |told: &RegimeSighting| {
                    std::mem::discriminant(&told.regime) != std::mem::discriminant(&found.regime)
                };
                let is_new = self.told.as_ref().map_or(found.regime != Regime::Takers, is_news);
                if is_new && found.regime != Regime::Takers {
                    warnings.push(LeaseWarning::Regime(found.clone()));
                }
                self.told = Some(found);
            }
            Err(error) => failures.push(error),
        }
        // One warning says enough until it works again.
        if let Some(error) = failures.pop() {
            if !std::mem::replace(&mut self.failing, true) {
                warnings.push(LeaseWarning::RegimeUnseen(error));
            }
        } else {
            self.failing = false;
        }
        self.next = Some(now + self.interval);
        Ok(warnings)
    }

    /// Whether a leader shares out the leases: it says so, or what it leaves behind has changed since the last look.
    fn is_led(&self, found: &RegimeSighting) -> bool {
        match (&found.regime, &self.told) {
            (Regime::Leader, _) => true,
            (
                Regime::Unclear { mark },
                Some(RegimeSighting { regime: Regime::Unclear { mark: before }, item, .. }),
            ) => *item == found.item && mark != before,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of workers are only made where no worker of the KCL takes them for leases; both settings are named.
    #[test]
    fn workers_have_rows_in_tables_of_our_own_only() {
        let said = |beats, tenants: &TableTenants| {
            let config = LeaseConfig::default().worker_heartbeat(beats);
            check_beat(&config, tenants).map_err(|error| error.to_string())
        };
        assert_eq!(said(true, &TableTenants::default()), Ok(()));
        assert_eq!(said(false, &shared(None)), Ok(()));
        let refused = said(true, &shared(None)).unwrap_err();
        assert!(
            refused.contains("worker_heartbeat") && refused.contains("coordination = native"),
            "{refused}"
        );
    }

    fn shared(kcl_lease: Option<&str>) -> TableTenants {
        TableTenants::shared(kcl_lease.map(str::to_owned))
    }

    /// S-033: the table says how leases are shared, and a setting that contradicts it is refused with what was found.
    #[test]
    fn the_table_says_how_leases_are_shared() {
        use Coordination::{KclCompatible, Native};
        let ours = TableTenants::default();
        let said =
            |setting, tenants: &TableTenants| settle(setting, tenants).map_err(|error| error.to_string());
        assert_eq!(said(None, &ours), Ok(Native));
        assert_eq!(said(None, &shared(None)), Ok(Native));
        assert_eq!(said(None, &shared(Some("x"))), Ok(KclCompatible));
        assert_eq!(said(Some(KclCompatible), &shared(None)), Ok(KclCompatible));
        assert_eq!(said(Some(KclCompatible), &shared(Some("x"))), Ok(KclCompatible));
        assert_eq!(said(Some(Native), &shared(None)), Ok(Native));
        let refused = said(Some(Native), &shared(Some("the lease a was made by the KCL"))).unwrap_err();
        assert!(refused.contains("coordination = native") && refused.contains("the lease a"), "{refused}");
        let refused = said(Some(KclCompatible), &ours).unwrap_err();
        assert!(refused.contains("coordination = kcl_compatible") && refused.contains("layout"), "{refused}");
    }
}
