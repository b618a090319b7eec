//! A log collector: it keeps the lines that are about a job or a node.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{LazyLock, Mutex};

use ratchet_api::{JobId, Owner};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

static LINES: LazyLock<Mutex<HashMap<String, Vec<Line>>>> = LazyLock::new(Mutex::default);

/// A logged line with its own fields and those of the spans around it.
#[derive(Clone, Debug)]
pub struct Line {
    pub level: Level,
    pub fields: BTreeMap<&'static str, String>,
}

impl Line {
    pub fn message(&self) -> &str {
        self.field("message")
    }

    /// Returns a field; blank if there is none.
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Installs the collector, which must be the program's only subscriber.
pub(crate) fn keep() {
    tracing::subscriber::set_global_default(Registry::default().with(Keeper)).expect("nobody else listens");
}

/// Returns the lines about a job so far.
pub(crate) fn of(job: JobId) -> Vec<Line> {
    about(&job.to_string())
}

/// Returns the lines about a node, and about no job, so far.
pub(crate) fn of_node(node: &Owner) -> Vec<Line> {
    about(node.as_str())
}

/// Returns the lines whose field `job`, or else `node`, has this value.
pub(crate) fn about(name: &str) -> Vec<Line> {
    LINES.lock().expect("nobody panics").get(name).cloned().unwrap_or_default()
}

struct Keeper;

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("ratchet")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        ctx.span(id).expect("it is new").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, ctx: Context<'_, S>) {
        let span = ctx.span(id).expect("it is there");
        record.record(span.extensions_mut().get_mut::<Fields>().expect("it has them"));
    }

    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in ctx.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(outer) = span.extensions().get::<Fields>() {
                fields.0.extend(outer.0.clone());
            }
        }
        event.record(&mut fields);
        if let Some(about) = fields.0.get("job").or_else(|| fields.0.get("node")).cloned() {
            let line = Line { level: *event.metadata().level(), fields: fields.0 };
            LINES.lock().expect("nobody panics").entry(about).or_default().push(line);
        }
    }
}
