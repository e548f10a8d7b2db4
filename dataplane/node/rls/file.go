package rls

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/strict/yamlvalue"
	"github.com/weirhq/weir/shared/window"
)

// Bounds of a rule's key and name, and of its value.
const (
	keyBytesMax   = 255
	valueBytesMax = 8 << 10
)

// These types mirror the file. Scalars stay YAML nodes until package yamlvalue reads them, because a decoder would turn
// 0.5 into 0.
type (
	file struct {
		Domain      yaml.Node    `yaml:"domain"`
		Descriptors []descriptor `yaml:"descriptors"`
	}

	descriptor struct {
		Key            yaml.Node    `yaml:"key"`
		Value          yaml.Node    `yaml:"value"`
		RateLimit      *rateLimit   `yaml:"rate_limit"`
		Descriptors    []descriptor `yaml:"descriptors"`
		ShadowMode     yaml.Node    `yaml:"shadow_mode"`
		QuotaMode      yaml.Node    `yaml:"quota_mode"`
		ShareThreshold yaml.Node    `yaml:"share_threshold"`
		Charged        yaml.Node    `yaml:"charged"` // only in Weir

		// Weir accepts these fields and ignores them: detailed_metric shapes metrics that Weir does
		// not have, and the others concern dynamic metadata.
		DetailedMetric yaml.Node      `yaml:"detailed_metric"`
		ValueToMetric  yaml.Node      `yaml:"value_to_metric"`
		Metadata       map[string]any `yaml:"metadata"`
	}

	rateLimit struct {
		RequestsPerUnit yaml.Node `yaml:"requests_per_unit"`
		Unit            yaml.Node `yaml:"unit"`
		UnitMultiplier  yaml.Node `yaml:"unit_multiplier"`
		Unlimited       yaml.Node `yaml:"unlimited"`
		Name            yaml.Node `yaml:"name"`
		Replaces        []struct {
			Name yaml.Node `yaml:"name"`
		} `yaml:"replaces"`
	}
)

// The decoder's errors name Go types, which mean nothing to the author of a file. These patterns
// rewrite them.
var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)
	otherKind  = regexp.MustCompile("cannot unmarshal !!(\\S+)(?: `[^`]*`)? into (\\S+)")
)

func plainError(err error) error {
	text := unknownKey.ReplaceAllString(err.Error(), `unknown key "$1"`)
	text = otherKind.ReplaceAllStringFunc(text, func(said string) string {
		parts := otherKind.FindStringSubmatch(said)
		want := "a mapping"
		if strings.HasPrefix(parts[2], "[]") {
			want = "a list"
		}
		return fmt.Sprintf("found a value of type %s, want %s", parts[1], want)
	})
	return errors.New(text)
}

// readFile decodes a file and checks its domain.
func readFile(content []byte) (f file, err error) {
	text, err := strict.Text(content)
	if err != nil {
		return f, fmt.Errorf("the file %w", err)
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	var all yaml.Node
	switch err := yaml.Unmarshal([]byte(text), &all); {
	case err != nil:
		return f, plainError(err)
	case all.IsZero():
		return f, errors.New("the file is empty")
	}
	if err := decoder.Decode(&f); err != nil {
		return f, plainError(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return f, errors.New("want one YAML document")
	}
	if err := valued(&all, ""); err != nil {
		return f, err
	}
	if f.Domain.IsZero() || f.Domain.Kind == yaml.ScalarNode && f.Domain.Value == "" {
		return f, fmt.Errorf("domain is 0 bytes long (1 to %d)", window.NamespaceBytesMax)
	}
	name, err := yamlvalue.Name("domain", &f.Domain, window.NamespaceBytesMax)
	f.Domain.Value = name
	return f, err
}

// valued returns an error for a key without a value. A limit without a value would limit nothing,
// or block everything.
func valued(n *yaml.Node, key string) error {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.ShortTag() == "!!null" && key != "" {
			return fmt.Errorf("line %d: %s has no value", n.Line, key)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "metadata" {
				continue // the key has no effect
			}
			if err := valued(n.Content[i+1], n.Content[i].Value); err != nil {
				return err
			}
		}
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, item := range n.Content {
			if n.Kind == yaml.SequenceNode && key == "" {
				key = "the list"
			}
			if err := valued(item, key); err != nil {
				return err
			}
		}
	}
	return nil
}
