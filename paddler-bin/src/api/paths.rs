//! Which paths are there, and what is done at each?

use super::table::{
    Answers, Content, Does, EVENTS, Endpoint, JSON, LINES, Operation, Query, TEXT, Verb, Who,
};

const fn json(schema: &'static str) -> Content {
    Content {
        media: JSON,
        schema: Some(schema),
    }
}

const fn answers(status: u16, description: &'static str, schema: &'static str) -> Answers {
    Answers {
        status,
        description,
        content: json(schema),
    }
}

const fn operation(verb: Verb, does: Does, summary: &'static str, answers: &'static [Answers]) -> Operation {
    Operation {
        verb,
        does,
        summary,
        query: &[],
        asked: None,
        answers,
        who: Who::Reader,
    }
}

const fn get(does: Does, summary: &'static str, answers: &'static [Answers]) -> Operation {
    operation(Verb::Get, does, summary, answers)
}

/// Which upstreams are looked for.
const OF_UPSTREAMS: &[Query] = &[
    Query {
        name: "find",
        description: "Words with spaces between, each of which is a part of an id, a URL, a label (zone=a) or of the name of a \
                      model or adapter that is served there. Case does not matter. At most 256 bytes and 16 words.",
        schema: r#"{"type": "string", "maxLength": 256}"#,
    },
    Query {
        name: "state",
        description: "Those in this state alone.",
        schema: r#"{"type": "string", "enum": ["ejected", "unable", "loading", "unheard", "paused", "degraded", "probing", "warming", "draining", "healthy"]}"#,
    },
    Query {
        name: "sort",
        description: "In this order, equals in that of their ids. state: whoever most needs somebody first; load, running, \
                      waiting, kv_cache: the most first; report_age: the oldest first. Default id.",
        schema: r#"{"type": "string", "enum": ["id", "state", "load", "running", "waiting", "kv_cache", "report_age"]}"#,
    },
    Query {
        name: "offset",
        description: "So many are left out before the first. Default 0.",
        schema: r#"{"type": "integer", "minimum": 0}"#,
    },
    Query {
        name: "limit",
        description: "So many at most: with details 100, which is also the default; without, 1000, and by default all.",
        schema: r#"{"type": "integer", "minimum": 1, "maximum": 1000}"#,
    },
    Query {
        name: "details",
        description: "true: each with what it serves and what is open there.",
        schema: r#"{"type": "boolean"}"#,
    },
];

/// What is asked of a body of a tree.
const TREE_BODY: Option<Content> = Some(json("TreeDocument"));

/// Server-sent events, for as long as they are read.
const fn events(description: &'static str) -> Answers {
    Answers {
        status: 200,
        description,
        content: Content {
            media: EVENTS,
            schema: None,
        },
    }
}

const TOO_MANY: Answers = answers(
    503,
    "As many follow events and agents as may: 64 together. Retry-After says when to ask again.",
    "Error",
);

const BUSY: Answers = answers(
    503,
    "Two long documents are made at once, and no turn came for 5 s. Retry-After says when to ask again.",
    "Error",
);

/// What an agent sends, for as long as it runs.
const fn heard(does: Does, summary: &'static str, asked: Content, answers: &'static [Answers]) -> Operation {
    Operation {
        asked: Some(asked),
        who: Who::Agent,
        ..operation(Verb::Post, does, summary, answers)
    }
}

const HEARD: Answers = answers(
    202,
    "The stream has come to its end, and all of it was heard.",
    "Heard",
);
const NO_MESSAGE: Answers = answers(
    400,
    "What is said cannot be read, and where that stands; or the stream broke off, or no agent has such an id.",
    "Error",
);
const SILENT: Answers = answers(408, "Nothing was said for too long: begin again.", "Error");
const ANOTHER: Answers = answers(409, "Another stream speaks under this id.", "Error");
const TOO_MANY_AGENTS: Answers = answers(507, "There are as many agents as may be: 4096.", "Error");

const UNREADABLE: Answers = answers(400, "It cannot be read.", "Error");
const NO_UPSTREAM: Answers = answers(404, "There is no such upstream.", "UnknownUpstream");
const FAULTS: Answers = answers(422, "It has faults: all of them.", "Faults");

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/api/v1/openapi.json",
        operations: &[get(
            Does::TellDocument,
            "This document.",
            &[answers(200, "OpenAPI 3.1.", "Document")],
        )],
    },
    Endpoint {
        path: "/api/v1/upstreams",
        operations: &[
            Operation {
                query: OF_UPSTREAMS,
                ..get(
                    Does::ListUpstreams,
                    "Upstreams, each with its status and how old that is: all, or those that are looked for.",
                    &[
                        answers(
                            200,
                            "Those that are looked for, and what all come to.",
                            "Upstreams",
                        ),
                        answers(400, "What stands behind the ? cannot be read.", "Error"),
                        BUSY,
                    ],
                )
            },
            Operation {
                asked: Some(json("NewUpstream")),
                ..operation(
                    Verb::Post,
                    Does::AddUpstream,
                    "Adds an upstream, in the words of a config file, or puts it in the place of one that was added so. It is \
                     there until it is removed or the program ends.",
                    &[
                        answers(201, "It is there.", "Upstream"),
                        answers(200, "It is in the place of the one before.", "Upstream"),
                        answers(
                            202,
                            "It will be there in a moment, or cannot be connected to, as the log says.",
                            "Id",
                        ),
                        UNREADABLE,
                        answers(
                            409,
                            "Somebody else tells of it, or it is there under another id.",
                            "Error",
                        ),
                        FAULTS,
                    ],
                )
            },
        ],
    },
    Endpoint {
        path: "/api/v1/upstreams/{id}",
        operations: &[
            get(
                Does::TellUpstream,
                "One upstream.",
                &[answers(200, "How it is.", "Upstream"), NO_UPSTREAM],
            ),
            operation(
                Verb::Delete,
                Does::RemoveUpstream,
                "Takes an upstream away that was added here.",
                &[
                    answers(200, "It is gone.", "Removed"),
                    NO_UPSTREAM,
                    answers(
                        409,
                        "The config tells of it: take it away there, or drain it.",
                        "Error",
                    ),
                ],
            ),
        ],
    },
    Endpoint {
        path: "/api/v1/upstreams/{id}/drain",
        operations: &[operation(
            Verb::Post,
            Does::DrainUpstream,
            "Takes an upstream out of every pick at once. What it has goes on; once its in_flight is 0 it is idle.",
            &[answers(200, "It is drained.", "Upstream"), NO_UPSTREAM],
        )],
    },
    Endpoint {
        path: "/api/v1/upstreams/{id}/undrain",
        operations: &[operation(
            Verb::Post,
            Does::UndrainUpstream,
            "Lets an upstream back in, also one that is away.",
            &[
                answers(
                    200,
                    "It gets work again, or will when it comes back.",
                    "UndrainedUpstream",
                ),
                NO_UPSTREAM,
            ],
        )],
    },
    Endpoint {
        path: "/api/v1/leases",
        operations: &[get(
            Does::TellLeases,
            "What is open at each upstream by our own count, as of now: requests, their weight, and what settles.",
            &[answers(200, "All of it.", "Leases")],
        )],
    },
    Endpoint {
        path: "/api/v1/queue",
        operations: &[get(
            Does::TellQueue,
            "Who waits: by priority, and by model (the 100 with most waiting, of those that an upstream has). Counts alone.",
            &[answers(200, "The queue.", "Queue")],
        )],
    },
    Endpoint {
        path: "/api/v1/models",
        operations: &[get(
            Does::ListModels,
            "Every model and adapter that can be asked for, with who serves it and whether that one gets work now.",
            &[answers(200, "All of them, by name.", "Models"), BUSY],
        )],
    },
    Endpoint {
        path: "/api/v1/tree",
        operations: &[
            Operation {
                query: &[Query {
                    name: "format",
                    description: "text, mermaid or dot: that form alone, as text. Without: all forms, and the nodes as data.",
                    schema: r#"{"type": "string", "enum": ["json", "text", "mermaid", "dot"]}"#,
                }],
                ..get(
                    Does::TellTree,
                    "The tree in force.",
                    &[
                        answers(200, "The tree.", "TreeInForce"),
                        Answers {
                            status: 200,
                            description: "The tree.",
                            content: Content {
                                media: TEXT,
                                schema: None,
                            },
                        },
                        answers(400, "There is no such format.", "Error"),
                    ],
                )
            },
            Operation {
                asked: TREE_BODY,
                ..operation(
                    Verb::Put,
                    Does::ReplaceTree,
                    "Puts another tree in force, for the picks from now on. No file is changed: a reload brings the config's \
                     tree back, and so does a restart.",
                    &[answers(200, "It is in force.", "TreeReplaced"), FAULTS],
                )
            },
        ],
    },
    Endpoint {
        path: "/api/v1/tree/validate",
        operations: &[Operation {
            asked: TREE_BODY,
            ..operation(
                Verb::Post,
                Does::ValidateTree,
                "Reads a tree, says what it is or what is wrong with it, and changes nothing.",
                &[answers(200, "It is sound.", "Tree"), FAULTS],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/config",
        operations: &[Operation {
            who: Who::Local,
            ..get(
                Does::TellConfig,
                "The settings in force, in the words of a config file: that of the last reload, but for what waits for a \
                 restart. Keys are not in it, only the files that hold them; nor is the tree, nor what was added here.",
                &[answers(200, "The settings.", "ConfigInForce")],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/events",
        operations: &[get(
            Does::FollowEvents,
            "What changes, as it changes, as server-sent events: upstream.joined, upstream.left, upstream.changed, \
             upstream.state, upstream.ejected, config.reloaded, tree.replaced, stopping, each with JSON as its data. Last-Event-ID \
             goes on from there; where that cannot be, or a reader is too slow, a gap event says how many are missing, if that \
             is known. A comment comes every 5 s when nothing else does. It ends when the program is told to stop.",
            &[
                events(
                    "Events, for as long as they are read. The data of each is an Event of this document.",
                ),
                TOO_MANY,
            ],
        )],
    },
    Endpoint {
        path: "/api/v1/explain",
        operations: &[Operation {
            query: &[
                Query {
                    name: "path",
                    description: "The path that the request is for. Default /v1/chat/completions.",
                    schema: r#"{"type": "string"}"#,
                },
                Query {
                    name: "method",
                    description: "Its method. Default POST.",
                    schema: r#"{"type": "string"}"#,
                },
            ],
            asked: Some(json("Request")),
            ..operation(
                Verb::Post,
                Does::Explain,
                "Where a request with this body would go now, and why. Nothing is sent, reserved or kept.",
                &[answers(200, "Where, and why.", "Explained"), UNREADABLE],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/snapshot",
        operations: &[Operation {
            who: Who::Local,
            ..get(
                Does::TellSnapshot,
                "The statuses that requests are routed by, for paddler explain --snapshot.",
                &[answers(200, "A record of them.", "Snapshot"), BUSY],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/decisions",
        operations: &[Operation {
            who: Who::Local,
            query: &[
                Query {
                    name: "limit",
                    description: "So many at most. Default 100.",
                    schema: r#"{"type": "integer", "minimum": 1, "maximum": 1000}"#,
                },
                Query {
                    name: "model",
                    description: "Those that ask for this model.",
                    schema: r#"{"type": "string"}"#,
                },
                Query {
                    name: "upstream",
                    description: "Those that were sent to this upstream, also if they were sent elsewhere afterwards.",
                    schema: r#"{"type": "string"}"#,
                },
            ],
            ..get(
                Does::ListDecisions,
                "Where the last requests went and why, and what became of them, as far as they are kept: see decisions in the \
                 config.",
                &[
                    answers(200, "The last first.", "Decisions"),
                    answers(400, "The limit is none.", "Error"),
                    BUSY,
                ],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/decisions/{id}",
        operations: &[Operation {
            who: Who::Local,
            ..get(
                Does::TellDecision,
                "The same of one request, by its x-request-id.",
                &[
                    answers(200, "Where it went, and why.", "Decision"),
                    answers(404, "It is not kept.", "Error"),
                ],
            )
        }],
    },
    Endpoint {
        path: "/api/v1/reload",
        operations: &[
            get(
                Does::TellReload,
                "How the last reload went, if there was one.",
                &[answers(200, "How it went.", "LastReload")],
            ),
            operation(
                Verb::Post,
                Does::Reload,
                "Reads the config again and puts it in force, if it has no fault.",
                &[
                    answers(200, "It is in force.", "ReloadReport"),
                    answers(409, "There is no config here that could be read again.", "Error"),
                    answers(422, "It has faults, and nothing has changed.", "ReloadReport"),
                ],
            ),
        ],
    },
    Endpoint {
        path: "/api/v1/agents",
        operations: &[get(
            Does::ListAgents,
            "All agents, in the words of Paddler 1.x and in the order in which it chose among them.",
            &[answers(200, "All of them.", "Agents"), BUSY],
        )],
    },
    Endpoint {
        path: "/api/v1/agents/stream",
        operations: &[get(
            Does::FollowAgents,
            "The same as server-sent events: at once, then at each change. A comment comes every 5 s when nothing else does.",
            &[
                events(
                    "Events, for as long as they are read. The data of each is an Agents of this document.",
                ),
                TOO_MANY,
            ],
        )],
    },
    Endpoint {
        path: "/api/v1/agents/{id}/status",
        operations: &[heard(
            Does::HearAgent,
            "Hears paddler agent: a JSON object a line, for as long as it runs.",
            Content {
                media: LINES,
                schema: Some("AgentMessage"),
            },
            &[
                HEARD,
                NO_MESSAGE,
                SILENT,
                ANOTHER,
                answers(
                    410,
                    "It is not known of which upstream it speaks: begin with a message that has `upstream`.",
                    "Error",
                ),
                TOO_MANY_AGENTS,
            ],
        )],
    },
    Endpoint {
        path: "/api/v1/agent_status_update/{id}",
        operations: &[heard(
            Does::HearAgentOf2025,
            "Hears an agent of Paddler 1.x, of July 2025: a JSON object each time that it has asked its llama.cpp.",
            json("AgentStatusUpdate"),
            HEARD_OLD,
        )],
    },
    Endpoint {
        path: "/status_update/{id}",
        operations: &[heard(
            Does::HearAgentOf12,
            "Hears an agent of Paddler 1.2 and before, in the same way.",
            json("AgentStatusUpdate"),
            HEARD_OLD,
        )],
    },
];

const HEARD_OLD: &[Answers] = &[HEARD, NO_MESSAGE, SILENT, ANOTHER, TOO_MANY_AGENTS];
