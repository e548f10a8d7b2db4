package rls

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirhq/weir/shared/reload"
)

// The rules on the pages are valid, and their filters match Envoy's protos.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, filters := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1) {
			if strings.HasPrefix(string(block[1]), "domain:") {
				if _, err := Parse([]reload.File{{Path: page, Content: block[1]}}); err != nil {
					t.Error(err)
				}
				rules++
				continue
			}
			filters += filtersIn(t, block[1])
		}
	}
	if rules != 2 || filters != 6 {
		t.Errorf("checked %d rules and %d filters, want 2 and 6", rules, filters)
	}
}

func filtersIn(t *testing.T, text []byte) (filters int) {
	t.Helper()
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	configs := find(document, "typed_config")
	for _, of := range find(document, "typed_per_filter_config") {
		configs = append(configs, find(of, "envoy.filters.http.ratelimit")...)
	}
	for _, filter := range configs {
		written, err := json.Marshal(filter)
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(written, new(anypb.Any)); err != nil {
			t.Errorf("%v\n%s", err, written)
		}
	}
	return len(configs)
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
