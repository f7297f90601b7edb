package resttest

// Projects has a request for each route of the door /api/sandboxes that needs a key.
var Projects = map[string]Request{
	"POST /api/sandboxes": json(`{"project_name":"taken"}`), "POST /api/sandboxes/{$}": json(`{"project_name":"taken"}`), "GET /api/sandboxes": {}, "GET /api/sandboxes/{$}": {},
	"POST /api/sandboxes/test": json(`{"use_sandbox":false}`), "POST /api/sandbox/test": json(`{"use_sandbox":false}`),
	"POST /api/sandboxes/{id}/cleanup": {Query: "hours=0"}, // the caller's own, whatever the id
	"GET /api/settings":                {}, "PATCH /api/settings": json(`{"use_sandbox":true}`),
}

// InProject has one for each of its routes about one sandbox.
var InProject = map[string]Request{
	"GET /api/sandboxes/{id}": {}, "DELETE /api/sandboxes/{id}": {}, "POST /api/sandboxes/{id}/start": {}, "POST /api/sandboxes/{id}/stop": {},
	"POST /api/sandboxes/{id}/execute": json(`{"command":["sh","-c","echo taken >taken"]}`),
}
