package rls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/reload"
	"github.com/weirhq/weir/shared/window"
)

// Rules are the limits of all domains. They never change; nil Rules hold none.
type Rules struct{ domains map[string]*level }

// Limit is a rule's limit. It never changes.
type Limit struct {
	Unlimited bool
	Shadow    bool // never denies, but is counted
	Quota     bool // denies only if all quotas of a call are over
	Charged   bool // counts whatever it says; hits of 0 ask whether there is anything left

	name     string
	replaces []string // names of rules that do not apply where this one does
	limit    int64
	duration time.Duration

	// onTheWire is current_limit of every answer about this rule: nothing writes to it.
	onTheWire *rlsv3.RateLimitResponse_RateLimit
	written   []byte // the same, as a status holds it; nil for a limit that a descriptor carries
}

// level is what may follow a matched entry: the next entry's rules.
type level struct {
	pairs     map[pair]*rule // keys with a value
	wildcards []wildcard     // keys with a value that holds '*', in the file's order
	keys      map[string]*rule
}

type pair struct{ key, value string }

type wildcard struct {
	key   string
	parts []string // the value, split at each '*'
	rule  *rule
}

type rule struct {
	limit *Limit // nil: the rule only leads to the next level
	next  *level // nil: no descriptor goes on from here

	share   bool   // all values that match the pattern share one count
	pattern string // the value as it is in the file
}

// Parse reads one file for each domain. An error names the file and, where it can,
// the rule.
func Parse(files []reload.File) (*Rules, error) {
	rules := &Rules{domains: make(map[string]*level, len(files))}
	var faults []error
	for _, f := range files {
		domain, top, err := parseFile(f.Content)
		if _, twice := rules.domains[domain]; twice && err == nil {
			err = fmt.Errorf("domain %q is in another file too", domain)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("rules in %s: %w", f.Path, err))
			continue
		}
		rules.domains[domain] = top
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return rules, nil
}

// The file as it is written.
type (
	file struct {
		Domain      string       `yaml:"domain"`
		Descriptors []descriptor `yaml:"descriptors"`
	}

	descriptor struct {
		Key            string       `yaml:"key"`
		Value          string       `yaml:"value"`
		RateLimit      *rateLimit   `yaml:"rate_limit"`
		Descriptors    []descriptor `yaml:"descriptors"`
		ShadowMode     bool         `yaml:"shadow_mode"`
		QuotaMode      bool         `yaml:"quota_mode"`
		ShareThreshold bool         `yaml:"share_threshold"`
		Charged        bool         `yaml:"charged"` // of Weir alone

		// Accepted and not used: they shape metrics by descriptor, which this service does not
		// have, and dynamic metadata.
		DetailedMetric bool           `yaml:"detailed_metric"`
		ValueToMetric  bool           `yaml:"value_to_metric"`
		Metadata       map[string]any `yaml:"metadata"`
	}

	rateLimit struct {
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unit            string `yaml:"unit"`
		Unlimited       bool   `yaml:"unlimited"`
		Name            string `yaml:"name"`
		Replaces        []struct {
			Name string `yaml:"name"`
		} `yaml:"replaces"`
	}
)

// unknownKey matches what the decoder says of one. It names a Go type, which a file's author does not know.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

func parseFile(content []byte) (domain string, top *level, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	var f file
	if err := decoder.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return "", nil, errors.New(unknownKey.ReplaceAllString(err.Error(), `unknown key "$1"`))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return "", nil, errors.New("want one YAML document")
	}
	if n := len(f.Domain); n == 0 || n > window.NamespaceBytesMax {
		return "", nil, fmt.Errorf("domain is %d bytes long (1 to %d)", n, window.NamespaceBytesMax)
	}
	top, err = newLevel(f.Domain, f.Descriptors)
	return f.Domain, top, err
}

// newLevel returns nil where there are no descriptors. path is for errors.
func newLevel(path string, descriptors []descriptor) (*level, error) {
	if len(descriptors) == 0 {
		return nil, nil
	}
	l := &level{pairs: make(map[pair]*rule), keys: make(map[string]*rule)}
	for _, d := range descriptors {
		path := path + "." + d.Key
		if d.Value != "" {
			path += "_" + d.Value
		}
		if err := l.add(path, d); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *level) add(path string, d descriptor) (err error) {
	isWildcard := strings.Contains(d.Value, "*")
	switch {
	case d.Key == "":
		return fmt.Errorf("%s: key is empty", path)
	case d.Value == "" && l.keys[d.Key] != nil, l.pairs[pair{d.Key, d.Value}] != nil:
		return fmt.Errorf("%s: appears twice", path)
	case d.ShareThreshold && !isWildcard:
		return fmt.Errorf("%s: share_threshold is for values with a '*'", path)
	}
	r := &rule{share: d.ShareThreshold, pattern: d.Value}
	if r.limit, err = newLimit(d); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if r.next, err = newLevel(path, d.Descriptors); err != nil {
		return err
	}
	switch {
	case d.Value == "":
		l.keys[d.Key] = r
	case isWildcard:
		l.wildcards = append(l.wildcards, wildcard{d.Key, strings.Split(d.Value, "*"), r})
		fallthrough // so that a second one like it is noticed
	default:
		l.pairs[pair{d.Key, d.Value}] = r
	}
	return nil
}

func newLimit(d descriptor) (*Limit, error) {
	y := d.RateLimit
	switch {
	case d.Charged && (y == nil || y.Unlimited):
		return nil, errors.New("charged is for rules with a limit")
	case d.Charged && d.QuotaMode:
		return nil, errors.New("a rule is charged or in quota_mode, not both")
	case y == nil:
		return nil, nil
	}
	l := &Limit{Unlimited: y.Unlimited, Shadow: d.ShadowMode, Quota: d.QuotaMode, Charged: d.Charged, name: y.Name,
		limit: int64(y.RequestsPerUnit)}
	unit := rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(y.Unit)])
	switch l.duration = unitDuration(int32(unit)); {
	case y.Unlimited && l.duration != 0:
		return nil, errors.New("unlimited has no unit")
	case !y.Unlimited && l.duration == 0:
		return nil, fmt.Errorf("unit is %q (second, minute, hour, day, week, month or year)", y.Unit)
	}
	for _, replaced := range y.Replaces {
		if replaced.Name == "" || replaced.Name == y.Name {
			return nil, fmt.Errorf("replaces %q: want another rule's name", replaced.Name)
		}
		l.replaces = append(l.replaces, replaced.Name)
	}
	l.onTheWire = &rlsv3.RateLimitResponse_RateLimit{Name: y.Name, RequestsPerUnit: y.RequestsPerUnit, Unit: unit}
	l.written = appendMessage(nil, wire.Tag(2, wire.Bytes), l.onTheWire)
	return l, nil
}

// unitDuration is 0 for a unit that there is not. The units of overrides have the
// same numbers.
func unitDuration(unit int32) time.Duration {
	const day = 24 * time.Hour
	switch rlsv3.RateLimitResponse_RateLimit_Unit(unit) {
	case rlsv3.RateLimitResponse_RateLimit_SECOND:
		return time.Second
	case rlsv3.RateLimitResponse_RateLimit_MINUTE:
		return time.Minute
	case rlsv3.RateLimitResponse_RateLimit_HOUR:
		return time.Hour
	case rlsv3.RateLimitResponse_RateLimit_DAY:
		return day
	case rlsv3.RateLimitResponse_RateLimit_WEEK:
		return 7 * day
	case rlsv3.RateLimitResponse_RateLimit_MONTH:
		return 30 * day
	case rlsv3.RateLimitResponse_RateLimit_YEAR:
		return 365 * day
	}
	return 0
}

// wholeUnits is a window as so many of the largest unit that fits it: of seconds, rounded
// up, where none does.
func wholeUnits(d time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	for unit := rlsv3.RateLimitResponse_RateLimit_DAY; unit > rlsv3.RateLimitResponse_RateLimit_SECOND; unit-- {
		if length := unitDuration(int32(unit)); d >= length && d%length == 0 {
			return unit, uint32(d / length)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_SECOND, uint32((d + time.Second - 1) / time.Second)
}
