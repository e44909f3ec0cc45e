//! Settings of the coordinator.

use std::fmt;
use std::time::Duration;

use kinesis_core::ConfigError;
use kinesis_core::lease::ScanCost;

/// Where the lease task runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HeartbeatMode {
    /// On a thread with a small runtime of its own, so that a handler that blocks the caller's runtime costs no lease.
    #[default]
    OwnThread,
    /// On the caller's runtime, so that it follows that runtime's (also paused) time.
    Inline,
}

/// How workers share the leases of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Coordination {
    /// As workers of this library do it among themselves: a lease of another worker is asked for and handed over. Leases
    /// that a worker of the KCL holds are left to it.
    #[default]
    Native,
    /// As the KCL 2.x does it, so that workers in Java and in Rust have their parts: its target, its limit of how many
    /// leases are taken from a live worker, its conditions. Between two workers of this library leases are still handed
    /// over.
    KclCompatible,
}

impl fmt::Display for Coordination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "native",
            Self::KclCompatible => "kcl_compatible",
        })
    }
}

/// What an even share of the leases is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Balance {
    /// The same number for each worker.
    #[default]
    Count,
    /// The same load for each worker, as far as leases can be divided. The load of a lease is the part of a second for
    /// which its records keep the handler busy, plus the part of a shard's read limits that they take: bytes per second
    /// / 2,000,000, and records per second / 50,000. Each holder stores the average over
    /// [`load_window`](LeaseConfig::load_window) with its renewals and checkpoints, so that it costs no write (four in each
    /// window with [`worker_heartbeat`](LeaseConfig::worker_heartbeat), where nothing else writes the row).
    ///
    /// A lease weighs one third by itself and two thirds by its load, in units of the average lease. A lease is asked for
    /// when that brings the two workers clearly closer to each other
    /// ([`LeaseConfig::LEAST_GAIN`], [`LeaseConfig::LOAD_BAND`], [`LeaseConfig::LOAD_DOUBT`],
    /// [`LeaseConfig::LEAST_LOAD`]). As long as a worker of the application holds leases and stores no load of any, leases
    /// are shared by their number alone. Not with [`Coordination::KclCompatible`].
    Load,
}

/// Settings of a [`Coordinator`](crate::Coordinator). All workers of an application should have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct LeaseConfig {
    /// How long after the last write a held lease is renewed. A checkpoint counts as a renewal. Default 3 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub heartbeat_interval: Duration,
    /// How long a counter must stand still, on the observer's own clock, until the lease may be taken. The holder
    /// itself stops after [`LeaseConfig::BELIEF`] of it. Default 10 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub expiry: Duration,
    /// How often a worker looks for what can be taken and what is asked of it: at all rows, or between two looks at all
    /// rows at those that something hangs on, and at the store's hints. Default 1 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub look_interval: Duration,
    /// How often the rows of all workers are read. The default is each look where that is one cheap statement (memory,
    /// SQLite, PostgreSQL), and [`LeaseConfig::SPARSE_LOOK_INTERVAL`] where each row read is paid for (DynamoDB).
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub full_look_interval: Option<Duration>,
    /// How often the stream's shards are listed. Default 60 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub discovery_interval: Duration,
    /// How long a holder may take to finish its work when another worker asks for the lease. After that the holder
    /// loses it; a holder that does not even notice is robbed one `expiry` later (where all rows are read more seldom than
    /// each `look_interval`, one `full_look_interval` after that). Default 30 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub hand_over_timeout: Duration,
    /// How long one call to the store may take before its outcome counts as unknown. The default is a fifth of
    /// `expiry` (2 s): after a heartbeat interval there is room for two calls that hang and one that works before the
    /// holder has to stop.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub store_timeout: Option<Duration>,
    /// The most leases that this worker takes; at least 1. Default: no limit.
    pub max_leases: Option<usize>,
    /// What an even share of the leases is. Default: the same number for each worker.
    pub balance: Balance,
    /// With [`Balance::Load`]: the time constant of the average load, and how long the loads of a worker that has got a
    /// lease are measured anew before it may ask for another because of them. At least two heartbeat intervals. Default
    /// 2 min.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub load_window: Duration,
    /// How leases are shared with other workers. By default the table is looked at when the worker starts: where the KCL
    /// has made or holds a lease, as the KCL does it, else (also in an empty table) natively. It never changes while the
    /// worker runs; a setting that the table contradicts is refused.
    pub coordination: Option<Coordination>,
    /// With [`Coordination::KclCompatible`]: the most leases that are taken from live workers of the KCL at one time, each
    /// [`LeaseConfig::steal_interval`]; at least 1. Default 1, as in the KCL (`maxLeasesToStealAtOneTime`).
    pub max_leases_to_steal: usize,
    /// How often a table that the KCL can use is looked at for traces of its version 3, in which a leader assigns the
    /// leases: once it does, this worker stops. Default 30 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub regime_interval: Duration,
    /// Whether this worker publishes, with each of these looks, that it lives, in the form of the KCL 3.x (without
    /// figures). An upgrade from 2.x to 3.x waits until every owner of a lease does; it needs an interval of 30 s or less.
    /// Default: no.
    pub publish_worker_metrics: bool,
    /// Whether one write each `heartbeat_interval`, to a row of the worker, shows that this worker lives, instead of a
    /// renewal of each of its leases. For [`Coordination::Native`] and tables that the KCL cannot use: elsewhere a start
    /// is refused. All workers of the application have to know such rows, but need not have them. See `docs/leases.md`
    /// for what it saves and costs. Default: no.
    pub worker_heartbeat: bool,
}

/// How long the KCL 3.x believes in what a worker has published.
const PUBLISHED_FOR: Duration = Duration::from_secs(60);

/// Longer times are mistakes, and sums of them would overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(3),
            expiry: Duration::from_secs(10),
            look_interval: Duration::from_secs(1),
            full_look_interval: None,
            discovery_interval: Duration::from_secs(60),
            hand_over_timeout: Duration::from_secs(30),
            store_timeout: None,
            max_leases: None,
            balance: Balance::Count,
            load_window: Duration::from_secs(120),
            coordination: None,
            max_leases_to_steal: 1,
            regime_interval: Duration::from_secs(30),
            publish_worker_metrics: false,
            worker_heartbeat: false,
        }
    }
}

impl LeaseConfig {
    /// The part of `expiry` for which a holder believes in its lease, counted from the start of its last successful
    /// write: with clocks whose rates differ by less than 5 % no two workers ever believe at once.
    pub const BELIEF: f64 = 0.9;

    /// How often all rows are read where each row read is paid for, unless
    /// [`full_look_interval`](Self::full_look_interval) says otherwise: 20 s, as often as the KCL does.
    pub const SPARSE_LOOK_INTERVAL: Duration = Duration::from_secs(20);

    /// With [`Balance::Load`]: a lease of the weight `w` is asked for only of a worker that is heavier by `d`, and if
    /// `w × (d − w)` is at least this, in units of the average lease. Between workers of leases that weigh the same this is
    /// 1 where the other has two leases more, and 0 where it has one more.
    pub const LEAST_GAIN: f64 = 0.5;

    /// With [`Balance::Load`]: workers whose numbers of leases differ by less than two count as even while their weights
    /// differ by less than this part of the average worker's. A worker with two leases more that is heavier by less than
    /// this is asked only once the loads of both are measured since they last got a lease.
    pub const LOAD_BAND: f64 = 0.2;

    /// With [`Balance::Load`]: how far off the load of a lease may be that is measured for one
    /// [`heartbeat_interval`](Self::heartbeat_interval), as a part of it; over a [`load_window`](Self::load_window) that is
    /// less, by the root of the number of intervals in it. Nothing is asked for while two workers differ by less than what
    /// such errors of all their leases come to: that part of the root of the sum of the squares of what the leases weigh
    /// because of their loads.
    pub const LOAD_DOUBT: f64 = 0.8;

    /// With [`Balance::Load`]: no lease is asked for that would leave more than this part of the difference the other way
    /// round.
    pub const LOAD_TURN: f64 = 0.5;

    /// With [`Balance::Load`]: a lease that went from one worker to another is left there for so many times
    /// [`load_window`](Self::load_window), 10 min by default: so loads move no lease more than six times an hour.
    pub const LOAD_REST: u32 = 5;

    /// With [`Balance::Load`]: where the average lease has less load than this, the numbers of leases count more.
    pub const LEAST_LOAD: f64 = 0.05;

    /// Sets [`heartbeat_interval`](Self::heartbeat_interval).
    #[must_use]
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval;
        self
    }

    /// Sets [`expiry`](Self::expiry).
    #[must_use]
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.expiry = expiry;
        self
    }

    /// Sets [`look_interval`](Self::look_interval).
    #[must_use]
    pub fn look_interval(mut self, interval: Duration) -> Self {
        self.look_interval = interval;
        self
    }

    /// Sets [`full_look_interval`](Self::full_look_interval).
    #[must_use]
    pub fn full_look_interval(mut self, interval: Duration) -> Self {
        self.full_look_interval = Some(interval);
        self
    }

    /// Sets [`discovery_interval`](Self::discovery_interval).
    #[must_use]
    pub fn discovery_interval(mut self, interval: Duration) -> Self {
        self.discovery_interval = interval;
        self
    }

    /// Sets [`hand_over_timeout`](Self::hand_over_timeout).
    #[must_use]
    pub fn hand_over_timeout(mut self, timeout: Duration) -> Self {
        self.hand_over_timeout = timeout;
        self
    }

    /// Sets [`store_timeout`](Self::store_timeout).
    #[must_use]
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = Some(timeout);
        self
    }

    /// Sets [`max_leases`](Self::max_leases).
    #[must_use]
    pub fn max_leases(mut self, max: usize) -> Self {
        self.max_leases = Some(max);
        self
    }

    /// Sets [`balance`](Self::balance).
    #[must_use]
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = balance;
        self
    }

    /// Sets [`load_window`](Self::load_window).
    #[must_use]
    pub fn load_window(mut self, window: Duration) -> Self {
        self.load_window = window;
        self
    }

    /// Sets [`coordination`](Self::coordination).
    #[must_use]
    pub fn coordination(mut self, coordination: Coordination) -> Self {
        self.coordination = Some(coordination);
        self
    }

    /// Sets [`max_leases_to_steal`](Self::max_leases_to_steal).
    #[must_use]
    pub fn max_leases_to_steal(mut self, max: usize) -> Self {
        self.max_leases_to_steal = max;
        self
    }

    /// Sets [`regime_interval`](Self::regime_interval).
    #[must_use]
    pub fn regime_interval(mut self, interval: Duration) -> Self {
        self.regime_interval = interval;
        self
    }

    /// Sets [`publish_worker_metrics`](Self::publish_worker_metrics).
    #[must_use]
    pub fn publish_worker_metrics(mut self, publish: bool) -> Self {
        self.publish_worker_metrics = publish;
        self
    }

    /// Sets [`worker_heartbeat`](Self::worker_heartbeat).
    #[must_use]
    pub fn worker_heartbeat(mut self, beat: bool) -> Self {
        self.worker_heartbeat = beat;
        self
    }

    /// The time between two takings from live workers of the KCL: twice the expiry, as in the KCL.
    #[must_use]
    pub fn steal_interval(&self) -> Duration {
        self.expiry * 2
    }

    /// How long one call to the store may take: [`store_timeout`](Self::store_timeout) or its default.
    #[must_use]
    pub fn call_timeout(&self) -> Duration {
        self.store_timeout.unwrap_or(self.expiry / 5)
    }

    /// How often the rows of all workers are read in a store whose scans cost this; never more often than
    /// [`look_interval`](Self::look_interval).
    #[must_use]
    pub fn all_rows_interval(&self, cost: ScanCost) -> Duration {
        let default = match cost {
            ScanCost::PerRow => Self::SPARSE_LOOK_INTERVAL,
            _ => self.look_interval,
        };
        self.full_look_interval.unwrap_or(default).max(self.look_interval)
    }

    /// How long a holder believes in a lease after the start of its last successful write.
    #[must_use]
    pub fn belief(&self) -> Duration {
        self.expiry.mul_f64(Self::BELIEF)
    }

    /// How far off a load may be, as a part of it.
    pub(crate) fn load_doubt(&self) -> f64 {
        Self::LOAD_DOUBT * self.heartbeat_interval.div_duration_f64(self.load_window).sqrt()
    }

    /// Checks the settings and their combinations.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first field that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let durations = [
            ("heartbeat_interval", self.heartbeat_interval),
            ("expiry", self.expiry),
            ("look_interval", self.look_interval),
            ("full_look_interval", self.full_look_interval.unwrap_or(self.look_interval)),
            ("discovery_interval", self.discovery_interval),
            ("hand_over_timeout", self.hand_over_timeout),
            ("store_timeout", self.call_timeout()),
            ("regime_interval", self.regime_interval),
            ("load_window", self.load_window),
        ];
        for (field, duration) in durations {
            if duration.is_zero() {
                return Err(ConfigError::new(field, "must be longer than zero"));
            }
            if duration > MAX_DURATION {
                return Err(ConfigError::new(field, "must not be longer than a year"));
            }
        }
        if self.heartbeat_interval >= self.expiry {
            return Err(ConfigError::new("heartbeat_interval", "must be shorter than expiry"));
        }
        if self.heartbeat_interval + self.call_timeout() > self.belief() {
            let problem = "heartbeat_interval and store_timeout together must not be longer than 0.9 x expiry, \
                           or a renewal could not end before the lease is given up";
            let field = if self.store_timeout.is_some() { "store_timeout" } else { "heartbeat_interval" };
            return Err(ConfigError::new(field, problem));
        }
        if self.full_look_interval.is_some_and(|interval| interval < self.look_interval) {
            return Err(ConfigError::new("full_look_interval", "must not be shorter than look_interval"));
        }
        if self.max_leases == Some(0) {
            return Err(ConfigError::new("max_leases", "must be at least 1"));
        }
        if let Some(coordination) = self.coordination {
            self.check_coordination(coordination)?;
        }
        if self.balance == Balance::Load && self.load_window < self.heartbeat_interval * 2 {
            let problem = "must be at least two heartbeat intervals: loads are stored with heartbeats";
            return Err(ConfigError::new("load_window", problem));
        }
        if self.max_leases_to_steal == 0 {
            return Err(ConfigError::new("max_leases_to_steal", "must be at least 1"));
        }
        if self.publish_worker_metrics && self.regime_interval > PUBLISHED_FOR / 2 {
            let problem =
                "must be 30 s or less with publish_worker_metrics, or the KCL takes this worker for gone";
            return Err(ConfigError::new("regime_interval", problem));
        }
        Ok(())
    }

    /// What does not go together with how leases are shared, whether that is set or what the table needs.
    pub(crate) fn check_coordination(&self, coordination: Coordination) -> Result<(), ConfigError> {
        if coordination != Coordination::KclCompatible {
            return Ok(());
        }
        if self.balance == Balance::Load {
            let problem = "load does not go together with coordination = kcl_compatible, which shares leases by their \
                           number as the KCL does; set balance = count, or use a table without the KCL";
            return Err(ConfigError::new("balance", problem));
        }
        if self.worker_heartbeat {
            let problem = "does not go together with coordination = kcl_compatible, because the KCL takes each row for a \
                           lease; leave worker_heartbeat out, or use a table without the KCL";
            return Err(ConfigError::new("worker_heartbeat", problem));
        }
        Ok(())
    }
}
