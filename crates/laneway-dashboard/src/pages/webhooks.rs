//! Webhook deliveries: their tries, and the way to send one again.

use askama::Template;
use laneway_wire::{Delivery, DeliveryList};

use crate::call::{query, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, duration, short, visible};
use crate::widgets::{Button, State};

const STATES: [&str; 4] = ["waiting", "delivered", "failed", "dropped"];

#[derive(Template)]
#[template(path = "webhooks.html")]
struct Webhooks {
    root: String,
    chips: Vec<(&'static str, String, bool)>,
    deliveries: Vec<Row>,
    next: Option<String>,
    is_filtered: bool,
}

struct Row {
    id: String,
    short: String,
    href: String,
    state: State,
    tries: u32,
    created: Moment,
    next: Option<Moment>,
    status: String,
    error: String,
    button: Option<Button>,
}

fn row(context: &Context, delivery: &Delivery, back: String) -> Row {
    let at = format!("webhooks/{}", segment(&delivery.job_id));
    let can_replay = context.may().submit && delivery.state != "waiting";
    Row {
        id: delivery.job_id.clone(),
        short: short(&delivery.job_id).to_owned(),
        href: format!("{}{at}", context.root),
        state: State::new(&delivery.state),
        tries: delivery.tries,
        created: Moment::new(&delivery.created_at, context.now),
        next: Moment::optional(delivery.next_at.as_deref(), context.now),
        status: delivery.last_status.map(|status| status.to_string()).unwrap_or_default(),
        error: visible(delivery.last_error.as_deref().unwrap_or_default()),
        button: can_replay.then(|| Button::new(context, &format!("{at}/replay"), "Send again").back(back)),
    }
}

/// Lists deliveries.
pub async fn list(context: &Context) -> Answer {
    let (state, cursor) =
        (context.field("state").unwrap_or_default(), context.field("cursor").unwrap_or_default());
    let asked = query([("state", state), ("cursor", cursor), ("limit", "50")]);
    let found: DeliveryList = context.api.get(&format!("/v1/deliveries{asked}")).await?;
    let chips = STATES.map(|name| {
        let is_on = name == state;
        (name, format!("webhooks{}", query([("state", if is_on { "" } else { name })])), is_on)
    });
    let back = format!("webhooks{}", query([("state", state)]));
    let page = Webhooks {
        root: context.root.clone(),
        chips: chips.into(),
        deliveries: found.deliveries.iter().map(|delivery| row(context, delivery, back.clone())).collect(),
        next: found
            .next
            .map(|next| format!("webhooks{}", query([("state", state), ("cursor", next.as_str())]))),
        is_filtered: !state.is_empty(),
    };
    context.page("webhooks", "Webhooks", &page)
}

#[derive(Template)]
#[template(path = "webhook.html")]
struct Webhook {
    root: String,
    delivery: Row,
    url: String,
    tries: Vec<Try>,
}

struct Try {
    number: u32,
    at: Moment,
    took: String,
    status: String,
    error: String,
}

/// Shows one delivery with its tries.
pub async fn show(context: &Context, id: &str) -> Answer {
    let delivery: Delivery = context.api.get(&format!("/v1/deliveries/{}", segment(id))).await?;
    let tries = delivery.history.iter().map(|one| Try {
        number: one.number,
        at: Moment::new(&one.at, context.now),
        took: duration(one.took_ms),
        status: one.status.map(|status| status.to_string()).unwrap_or_default(),
        error: visible(one.error.as_deref().unwrap_or_default()),
    });
    let page = Webhook {
        root: context.root.clone(),
        tries: tries.collect(),
        url: delivery.url.clone().unwrap_or_default(),
        delivery: row(context, &delivery, format!("webhooks/{}", segment(id))),
    };
    context.page("webhooks", format!("Webhook of {}", short(id)), &page)
}

/// Sends a webhook again.
pub async fn replay(context: &Context, id: &str) -> Answer {
    context.api.post(&format!("/v1/deliveries/{}/replay", segment(id))).await?;
    context.back(format!("webhooks/{}", segment(id)), "The webhook is sent again.")
}
