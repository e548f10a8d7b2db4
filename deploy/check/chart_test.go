package check

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// chart renders templates like Helm, as far as this chart needs it. Helm itself would bring the whole client of
// Kubernetes along, which takes minutes to compile. Functions come from the library that Helm uses; Helm's own
// functions are below.
type chart struct {
	dir    string
	schema *jsonschema.Schema
}

func openChart(t *testing.T) chart {
	t.Helper()
	dir := filepath.Join(root, "deploy/kubernetes/weir")
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(read(t, filepath.Join(dir, "values.schema.json"))))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("values.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return chart{dir, schema}
}

// render returns the manifests for values over the chart's own, or the error with which an installation would end.
func (c chart) render(values map[string]any) (manifests []string, err error) {
	var defaults, meta map[string]any
	if err := errors.Join(c.parse("values.yaml", &defaults), c.parse("Chart.yaml", &meta)); err != nil {
		return nil, err
	}
	merged := merge(defaults, values)
	if err := c.schema.Validate(merged); err != nil {
		return nil, err
	}
	templates, err := c.templates()
	if err != nil {
		return nil, err
	}
	data := map[string]any{
		"Values": merged, "Chart": map[string]any{"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
		"Release": map[string]any{"Name": "eu", "Namespace": "limits", "Service": "Helm"},
		"Files":   chartFiles{c.dir},
	}
	for _, t := range templates.Templates() {
		if !strings.HasSuffix(t.Name(), ".yaml") && t.Name() != "NOTES.txt" {
			continue
		}
		var out strings.Builder
		if err := t.Execute(&out, data); err != nil {
			return nil, err
		}
		if text := out.String(); strings.Contains(text, "<no value>") {
			return nil, fmt.Errorf("%s uses a value that is not there:\n%s", t.Name(), text)
		} else if t.Name() != "NOTES.txt" {
			for _, manifest := range strings.Split(text, "\n---\n") {
				if body := strings.TrimSpace(strings.TrimPrefix(manifest, "---\n")); body != "" {
					manifests = append(manifests, body)
				}
			}
		}
	}
	return manifests, nil
}

func (c chart) parse(name string, into *map[string]any) error {
	content, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		return err
	}
	return yaml.UnmarshalStrict(content, into)
}

func (c chart) templates() (*template.Template, error) {
	t := template.New("chart")
	functions := sprig.TxtFuncMap()
	delete(functions, "env") // as Helm does
	delete(functions, "expandenv")
	functions["include"] = func(name string, data any) (string, error) {
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = func(v any) (string, error) {
		out, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(out), "\n"), err
	}
	functions["required"] = func(message string, v any) (any, error) {
		if v == nil || v == "" {
			return nil, errors.New(message)
		}
		return v, nil
	}
	return t.Funcs(functions).ParseGlob(filepath.Join(c.dir, "templates", "*"))
}

// chartFiles is .Files.
type chartFiles struct{ dir string }

func (f chartFiles) Get(name string) (string, error) {
	content, err := os.ReadFile(filepath.Join(f.dir, name))
	return string(content), err
}

// merge lays values over defaults: objects are merged, anything else is replaced.
func merge(defaults, values map[string]any) map[string]any {
	merged := maps.Clone(defaults)
	for key, value := range values {
		inner, isObject := value.(map[string]any)
		if outer, both := merged[key].(map[string]any); both && isObject {
			value = merge(outer, inner)
		}
		merged[key] = value
	}
	return merged
}

// Every text that explains entries-max has the same figure for the memory of a key.
func TestEntriesMaxIsExplainedAlike(t *testing.T) {
	const figure = "about 200 B and the names"
	for _, path := range []string{
		"deploy/kubernetes/weir/values.yaml", "dataplane/node/README.md", "dataplane/node/nodecmd/config.go",
		"deploy/prometheus/runbooks/WeirEntriesNearCap.md", "deploy/prometheus/runbooks/WeirTableFull.md",
	} {
		if !strings.Contains(string(read(t, filepath.Join(root, path))), figure) {
			t.Errorf("%s does not say that a key takes %s", path, figure)
		}
	}
}
