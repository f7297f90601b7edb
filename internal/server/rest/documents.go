package rest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/server"
)

// Document is the OpenAPI document, as it is checked in.
func (a *API) Document() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(a.huma.OpenAPI()) // it holds nothing that has no JSON
	return b.Bytes()
}

// addDocuments adds the document and its page. It comes after all other routes.
func (a *API) addDocuments(router *server.Router) {
	document, page := a.Document(), a.page()
	serve := func(pattern, contentType string, body []byte, policy string) {
		router.Handle(server.Route{Pattern: pattern, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			if policy != "" {
				w.Header().Set("Content-Security-Policy", policy)
			}
			_, _ = w.Write(body) // a client that is gone needs no answer
		})})
	}
	serve("GET /openapi.json", "application/json", document, "")
	hash := sha256.Sum256([]byte(style))
	serve("GET /docs", "text/html; charset=utf-8", page,
		"default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'; frame-ancestors 'none'")
}

//go:embed docs.css
var style string

//go:embed docs.html
var pageText string

// page is the documentation for people: made once, without scripts, fonts and
// anything else from elsewhere.
func (a *API) page() []byte {
	t := template.Must(template.New("docs").Funcs(template.FuncMap{
		"fields": a.fields, "fieldsOf": fieldsOf, "type": typeName, "css": func() template.CSS { return template.CSS(style) },
	}).Parse(pageText))
	var b bytes.Buffer
	data := map[string]any{"Info": a.huma.OpenAPI().Info, "Operations": a.operations(), "Types": a.types(), "Codes": server.Codes()}
	if err := t.Execute(&b, data); err != nil {
		return []byte("the documentation could not be made: see /openapi.json") // a test holds the template
	}
	return b.Bytes()
}

// operations are all routes of the document, by path.
func (a *API) operations() []*huma.Operation {
	var all []*huma.Operation
	for _, item := range a.huma.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Head, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				all = append(all, op)
			}
		}
	}
	slices.SortFunc(all, func(a, b *huma.Operation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })
	return all
}

// field is one line of a table.
type field struct {
	Name, Type, Doc string
	Required        bool
}

// types are the objects that the document names.
func (a *API) types() map[string]*huma.Schema {
	all := map[string]*huma.Schema{}
	for name, s := range a.huma.OpenAPI().Components.Schemas.Map() {
		if len(s.Properties) > 0 {
			all[name] = s
		}
	}
	return all
}

// fields are those of an object, or of the object that a reference names.
func (a *API) fields(content map[string]*huma.MediaType) []field {
	if content["application/json"] == nil {
		return nil
	}
	s := content["application/json"].Schema
	if s.Ref != "" {
		s = a.huma.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref)
	}
	return fieldsOf(s)
}

func fieldsOf(s *huma.Schema) []field {
	var all []field
	for name, p := range s.Properties {
		all = append(all, field{name, typeName(p), p.Description, slices.Contains(s.Required, name)})
	}
	slices.SortFunc(all, func(a, b field) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func typeName(s *huma.Schema) string {
	forms, _ := s.Extensions["anyOf"].([]map[string]any) // see anyOf
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Type == "array" && s.Items != nil:
		return "list of " + typeName(s.Items)
	case len(s.Enum) > 0:
		return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(s.Enum), "["), "]")
	case s.Format != "":
		return s.Format
	case len(forms) > 0:
		var names []string
		for _, f := range forms {
			names = append(names, fmt.Sprint(f["type"]))
		}
		return strings.Join(names, " or ")
	case s.Type == "":
		return "value"
	default:
		return s.Type
	}
}
