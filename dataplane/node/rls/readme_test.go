package rls

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirhq/weir/shared/reload"
)

// The README's rules are rules, and its filters are what Envoy's protos say they are.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, filters := 0, 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1) {
		if strings.HasPrefix(string(block[1]), "domain:") {
			if _, err := Parse([]reload.File{{Path: "README.md", Content: block[1]}}); err != nil {
				t.Error(err)
			}
			rules++
			continue
		}
		var document any
		if err := yaml.Unmarshal(block[1], &document); err != nil {
			t.Errorf("%v\n%s", err, block[1])
		}
		for _, filter := range find(document, "typed_config") {
			written, err := json.Marshal(filter)
			if err != nil {
				t.Fatal(err)
			}
			if err := protojson.Unmarshal(written, new(anypb.Any)); err != nil {
				t.Errorf("%v\n%s", err, written)
			}
			filters++
		}
	}
	if rules != 1 || filters != 3 {
		t.Errorf("checked %d rules and %d filters, want 1 and 3", rules, filters)
	}
}

// find returns all values under a key, however deep.
func find(document any, key string) (found []any) {
	switch v := document.(type) {
	case map[string]any:
		for k, inner := range v {
			if k == key {
				found = append(found, inner)
				continue
			}
			found = append(found, find(inner, key)...)
		}
	case []any:
		for _, inner := range v {
			found = append(found, find(inner, key)...)
		}
	}
	return found
}
