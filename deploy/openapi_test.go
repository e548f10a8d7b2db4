package deploy_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	_ "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// openAPI is a document, as far as it is compared with the protos.
type openAPI struct {
	OpenAPI string
	Paths   map[string]openAPICall

	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
		}
	}
}

// openAPICall is a path of a document; streams have no Post.
type openAPICall struct {
	Post *struct {
		RequestBody struct {
			Content map[string]any
		} `yaml:"requestBody"`
	}
}

// The OpenAPI documents have each call of the protos that is no stream, and each field under the name that answers
// have: the node's as in the .proto, the control plane's as in protobuf's JSON.
func TestOpenAPIDocumentsHaveEachCallAndField(t *testing.T) {
	for path, of := range map[string]struct {
		pkg  protoreflect.FullName
		name func(protoreflect.FieldDescriptor) string
	}{
		"../shared/gen/openapi/weir-node.json":    {"weir.v1", func(f protoreflect.FieldDescriptor) string { return string(f.Name()) }},
		"../shared/gen/openapi/weir-control.json": {"weir.control.v1", protoreflect.FieldDescriptor.JSONName},
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var document openAPI
		if err := yaml.Unmarshal(text, &document); err != nil || !strings.HasPrefix(document.OpenAPI, "3.1") {
			t.Fatalf("%s: OpenAPI %q, %v", path, document.OpenAPI, err)
		}
		var calls []string
		protoregistry.GlobalFiles.RangeFilesByPackage(of.pkg, func(file protoreflect.FileDescriptor) bool {
			for i := range file.Services().Len() {
				calls = append(calls, unary(file.Services().Get(i))...)
			}
			for i := range file.Messages().Len() {
				message := file.Messages().Get(i)
				schema, ok := document.Components.Schemas[string(message.FullName())]
				if !ok {
					continue // only streams use it
				}
				for j := range message.Fields().Len() {
					if field := message.Fields().Get(j); schema.Properties[of.name(field)] == nil && field.ContainingOneof() == nil {
						t.Errorf("%s: %s has no property %s", path, message.FullName(), of.name(field))
					}
				}
			}
			return true
		})
		maps.DeleteFunc(document.Paths, func(_ string, call openAPICall) bool { return call.Post == nil }) // streams
		slices.Sort(calls)
		if has := slices.Sorted(maps.Keys(document.Paths)); len(calls) < 10 || !slices.Equal(has, calls) {
			t.Errorf("%s has the paths\n%v\nwant\n%v", path, has, calls)
		}
		for path, call := range document.Paths {
			if call.Post.RequestBody.Content["application/json"] == nil {
				t.Errorf("%s cannot be called by POST with JSON", path)
			}
		}
	}
}

// unary returns the paths of a service's calls that are no streams.
func unary(service protoreflect.ServiceDescriptor) (paths []string) {
	for i := range service.Methods().Len() {
		if m := service.Methods().Get(i); !m.IsStreamingServer() && !m.IsStreamingClient() {
			paths = append(paths, "/"+string(service.FullName())+"/"+string(m.Name()))
		}
	}
	return paths
}
