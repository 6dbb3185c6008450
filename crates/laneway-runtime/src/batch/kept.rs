//! What an engine knows that no row holds, kept for the engine that replaces it.
//!
//! It is read from the engine when a batch was applied, and kept when that batch is durable: by then the engine may have
//! applied a later batch, which may still fail.

use laneway_core::command::{AdminCommand, DeliveryCommand, WorkerCommand};
use std::collections::BTreeMap;

use laneway_core::worker::{ConnectionId, Register, WorkerReport};
use laneway_core::{Command, Engine, ExecutorOffer, LoadReading, Notice, Seq, Settings};

/// What an engine knows that no row holds; to be given again to an engine that replaces this one.
pub(super) struct Kept {
    pub settings: Settings,
    pub offers: Vec<ExecutorOffer>,
    pub storage_low: bool,
    pub draining: bool,
    /// Webhooks that were handed out and not heard of since, with their tries.
    pub under_way: BTreeMap<Seq, u32>,
    /// What the probe reported last.
    pub reading: Option<LoadReading>,
    /// Who registered over which connection, and what an operator ordered for them.
    pub registrations: BTreeMap<ConnectionId, Register>,
}

/// One thing to keep once the batch is durable.
pub(super) enum Remembered {
    Settings(Box<Settings>),
    Offers(Vec<ExecutorOffer>),
    StorageLow(bool),
    Draining,
    DeliveryTried {
        seq: Seq,
        number: u32,
    },
    Reading(Option<LoadReading>),
    Registered(Box<Register>),
    /// These connections have no registration any more.
    Unregistered(Vec<ConnectionId>),
}

impl Kept {
    pub fn new(settings: Settings) -> Kept {
        Kept {
            settings,
            offers: Vec::new(),
            storage_low: false,
            draining: false,
            under_way: BTreeMap::new(),
            reading: None,
            registrations: BTreeMap::new(),
        }
    }

    /// What is to be kept of a batch that the engine has just applied.
    pub fn remember(&self, engine: &Engine, taken: &[Command]) -> Vec<Remembered> {
        let mut remembered = Vec::new();
        for command in taken {
            match command {
                Command::Admin(AdminCommand::Configure { .. }) => {
                    remembered.push(Remembered::Settings(Box::new(engine.settings().clone())));
                }
                Command::Admin(AdminCommand::Offer(_)) | Command::Admin(AdminCommand::Withdraw(_)) => {
                    remembered.push(Remembered::Offers(engine.offers()));
                }
                Command::Admin(AdminCommand::StorageLow(low)) => {
                    remembered.push(Remembered::StorageLow(*low))
                }
                Command::Admin(AdminCommand::Drain) => remembered.push(Remembered::Draining),
                Command::Delivery(DeliveryCommand::Tried { seq, number, .. }) => {
                    remembered.push(Remembered::DeliveryTried { seq: *seq, number: *number });
                }
                Command::Admin(AdminCommand::Load(_)) => {
                    remembered.push(Remembered::Reading(engine.reading()))
                }
                Command::Worker(WorkerCommand::Register(register)) => {
                    self.remember_registration(engine, register.connection, &mut remembered);
                }
                Command::Worker(WorkerCommand::Message(message))
                    if matches!(message.report, WorkerReport::Gone | WorkerReport::Offers(_)) =>
                {
                    self.remember_registration(engine, message.connection, &mut remembered);
                }
                Command::Worker(WorkerCommand::Drain { tenant, worker, .. })
                | Command::Worker(WorkerCommand::Rebind { tenant, worker, .. }) => {
                    let register = engine.registration_of(tenant, worker);
                    remembered.extend(register.map(Box::new).map(Remembered::Registered));
                }
                _ => {}
            }
        }
        remembered
    }

    /// Who is registered over this connection now. A connection that lost its registration to it has none.
    fn remember_registration(
        &self,
        engine: &Engine,
        connection: ConnectionId,
        remembered: &mut Vec<Remembered>,
    ) {
        match engine.registration(connection) {
            None => remembered.push(Remembered::Unregistered(vec![connection])),
            Some(register) => {
                let known = self.registrations.keys().copied();
                let gone = known.filter(|connection| engine.registration(*connection).is_none());
                remembered.push(Remembered::Unregistered(gone.collect()));
                remembered.push(Remembered::Registered(Box::new(register)));
            }
        }
    }

    /// Keeps what was remembered of a batch that is durable now.
    pub fn keep(&mut self, remembered: Vec<Remembered>, notices: &[Notice]) {
        for item in remembered {
            match item {
                Remembered::Settings(settings) => self.settings = *settings,
                Remembered::Offers(offers) => self.offers = offers,
                Remembered::StorageLow(low) => self.storage_low = low,
                Remembered::Draining => self.draining = true,
                Remembered::DeliveryTried { seq, number } => {
                    if self.under_way.get(&seq) == Some(&number) {
                        self.under_way.remove(&seq);
                    }
                }
                Remembered::Reading(reading) => self.reading = reading,
                Remembered::Registered(register) => {
                    self.registrations.insert(register.connection, *register);
                }
                Remembered::Unregistered(connections) => {
                    connections.iter().for_each(|connection| drop(self.registrations.remove(connection)));
                }
            }
        }
        for notice in notices {
            if let Notice::Deliver { seq, number, .. } = notice {
                self.under_way.insert(*seq, *number);
            }
        }
    }
}
