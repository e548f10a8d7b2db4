package rls

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/reload"
	"github.com/weirhq/weir/shared/strict"
	"github.com/weirhq/weir/shared/strict/yamlvalue"
	"github.com/weirhq/weir/shared/window"
)

// Rules are the limits of all domains, which can come from several files each. The value of a domain has the rules for
// a descriptor's first entry; it is nil if the domain's files have no descriptors. Rules are immutable. nil Rules have
// no domains.
type Rules map[string]*level

// Limit is a rule's limit. It is immutable.
type Limit struct {
	Unlimited bool
	Shadow    bool // never denies, but counts
	Quota     bool // denies only if all quotas of a call are over
	Charged   bool // counts even above the limit; hits of 0 check whether anything is left

	name     string
	replaces []string // names of rules that do not apply together with this rule
	limit    int64
	duration time.Duration

	multiplier uint32 // number of units per window; 0 for a limit that a descriptor carries

	// onTheWire is current_limit of every response about this rule. It must not be modified.
	onTheWire *rlsv3.RateLimitResponse_RateLimit
	written   []byte // the same, encoded as in a status; nil for a limit that a descriptor carries
}

// level has the rules for the entry after a matched entry.
type level struct {
	pairs     map[pair]*rule // keys with a value
	wildcards []wildcard     // keys with a value that contains '*', in the file's order
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
	next  *level // nil: no descriptor continues from here

	share   bool   // all values that match the pattern share a count
	pattern string // the value as it is in the file
	at      string // file and line of the rule, for errors
}

// faultsMax bounds the number of faults in the error about files.
const faultsMax = 16

// Parse reads files of rules. Several files may have rules for the same domain, as with
// envoyproxy/ratelimit's MERGE_DOMAIN_CONFIG; then the same key and value in two of them is an
// error. The error lists up to 16 faults, each with its file, line and rule.
func Parse(files []reload.File) (Rules, error) {
	rules := make(Rules, len(files))
	var found []error
	for _, f := range files {
		for _, err := range rules.add(f) {
			found = append(found, fmt.Errorf("rules in %s: %w", f.Path, err))
		}
	}
	if len(found) > 0 {
		return nil, errors.Join(found[:min(len(found), faultsMax)]...)
	}
	return rules, nil
}

func (r Rules) add(f reload.File) []error {
	read, err := readFile(f.Content)
	if err != nil {
		return []error{err}
	}
	name := read.Domain.Value
	p := &parser{file: f.Path}
	r[name] = p.level(r[name], name, read.Descriptors)
	return p.found
}

// parser converts the content of one file to rules, and collects all errors.
type parser struct {
	file  string
	found []error
}

func (p *parser) wrong(at *yaml.Node, path, format string, args ...any) {
	p.found = append(p.found, fmt.Errorf("line %d: %s: %s", at.Line, path, fmt.Sprintf(format, args...)))
}

// ok reports whether err is nil, and otherwise records it.
func (p *parser) ok(err error) bool {
	if err != nil {
		p.found = append(p.found, err)
	}
	return err == nil
}

// level adds descriptors to l, or to a new level if l is nil. It returns nil if both are empty.
// path is for errors.
func (p *parser) level(l *level, path string, descriptors []descriptor) *level {
	if l == nil && len(descriptors) > 0 {
		l = &level{pairs: make(map[pair]*rule), keys: make(map[string]*rule)}
	}
	for i := range descriptors {
		p.rule(l, path, &descriptors[i])
	}
	return l
}

// rule adds a descriptor to a level.
func (p *parser) rule(l *level, path string, d *descriptor) {
	at := &d.Key
	key, value, ok := p.entry(path, d)
	if !ok {
		return
	}
	if path += "." + key; value != "" {
		path += "_" + value
	}
	isWildcard := strings.Contains(value, "*")
	shadow, quota := p.flag(path, "shadow_mode", &d.ShadowMode), p.flag(path, "quota_mode", &d.QuotaMode)
	share, charged := p.flag(path, "share_threshold", &d.ShareThreshold), p.flag(path, "charged", &d.Charged)
	p.flag(path, "detailed_metric", &d.DetailedMetric)
	p.flag(path, "value_to_metric", &d.ValueToMetric)
	r := &rule{share: share, pattern: value, at: fmt.Sprintf("%s, line %d", p.file, at.Line)}
	same := l.pairs[pair{key, value}]
	if value == "" {
		same = l.keys[key]
	}
	if same != nil {
		p.wrong(at, path, "appears twice: also in %s", same.at)
		return
	}
	if share && !isWildcard {
		p.wrong(at, path, "share_threshold needs a value with a '*'")
	}
	if d.RateLimit != nil {
		r.limit = p.limit(path, at, d.RateLimit)
	}
	switch {
	case charged && (d.RateLimit == nil || r.limit != nil && r.limit.Unlimited):
		p.wrong(at, path, "charged needs a rule with a limit")
	case charged && quota:
		p.wrong(at, path, "charged and quota_mode are both set: set at most one")
	case r.limit != nil:
		r.limit.Shadow, r.limit.Quota, r.limit.Charged = shadow, quota, charged
	}
	r.next = p.level(nil, path, d.Descriptors)
	switch {
	case value == "":
		l.keys[key] = r
	case isWildcard:
		l.wildcards = append(l.wildcards, wildcard{key, strings.Split(value, "*"), r})
		fallthrough // so that a second rule like it is noticed
	default:
		l.pairs[pair{key, value}] = r
	}
}

// line returns the line of a descriptor without a key, or nothing if no other field has a line.
func (d *descriptor) line() string {
	n := cmp.Or(d.Key.Line, d.Value.Line)
	if n == 0 && len(d.Descriptors) > 0 {
		n = d.Descriptors[0].Key.Line
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", n)
}

// entry reads a descriptor's key and value. A missing or empty value matches all values.
func (p *parser) entry(path string, d *descriptor) (key, value string, ok bool) {
	if d.Key.IsZero() || d.Key.Kind == yaml.ScalarNode && d.Key.Value == "" {
		p.found = append(p.found, fmt.Errorf("%s%s.: key is empty", d.line(), path))
		return "", "", false
	}
	key, err := yamlvalue.Name(path+": key", &d.Key, keyBytesMax)
	if !p.ok(err) || d.Value.IsZero() {
		return key, "", err == nil
	}
	value, err = yamlvalue.Text(path+"."+key+": value", &d.Value)
	if err == nil && value != "" {
		_, err = yamlvalue.Name(path+"."+key+": value", &d.Value, valueBytesMax)
	}
	return key, value, p.ok(err)
}

// flag reads an optional boolean.
func (p *parser) flag(path, name string, n *yaml.Node) bool {
	if n.IsZero() {
		return false
	}
	is, err := yamlvalue.Bool(path+": "+name, n)
	p.ok(err)
	return is
}

// limit returns nil if the limit is invalid.
func (p *parser) limit(path string, at *yaml.Node, y *rateLimit) *Limit {
	before := len(p.found)
	l := new(Limit)
	var err error
	if !y.Name.IsZero() {
		l.name, err = yamlvalue.Name(path+": name", &y.Name, keyBytesMax)
		p.ok(err)
	}
	if !y.Unlimited.IsZero() {
		l.Unlimited, err = yamlvalue.Bool(path+": unlimited", &y.Unlimited)
		p.ok(err)
	}
	unit := p.unit(path, at, y, l)
	if y.RequestsPerUnit.IsZero() {
		if !l.Unlimited {
			p.wrong(at, path, "requests_per_unit is missing (0 to %d; 0 blocks)", uint32(math.MaxUint32))
		}
	} else {
		l.limit, err = yamlvalue.Int(path+": requests_per_unit", &y.RequestsPerUnit, 0, math.MaxUint32)
		p.ok(err)
	}
	for i := range y.Replaces {
		name, err := yamlvalue.Name(path+": replaces", &y.Replaces[i].Name, keyBytesMax)
		switch {
		case y.Replaces[i].Name.IsZero() || err == nil && name == l.name:
			p.wrong(at, path, "replaces %q: want another rule's name", name)
		case p.ok(err):
			l.replaces = append(l.replaces, name)
		}
	}
	if len(p.found) > before {
		return nil
	}
	l.onTheWire = &rlsv3.RateLimitResponse_RateLimit{Name: l.name, RequestsPerUnit: uint32(l.limit), Unit: unit}
	if l.multiplier > 1 {
		l.onTheWire.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
	}
	l.written = appendMessage(nil, wire.Tag(2, wire.Bytes), l.onTheWire)
	return l
}

// unit reads the length of a limit's window.
func (p *parser) unit(path string, at *yaml.Node, y *rateLimit,
	l *Limit) (unit rlsv3.RateLimitResponse_RateLimit_Unit) {
	text := ""
	if !y.Unit.IsZero() {
		var err error
		if text, err = yamlvalue.Text(path+": unit", &y.Unit); !p.ok(err) {
			return 0
		}
		at = &y.Unit
	}
	unit = rlsv3.RateLimitResponse_RateLimit_Unit(rlsv3.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(text)])
	length := unitDuration(int32(unit))
	switch {
	case l.Unlimited && (length != 0 || !y.UnitMultiplier.IsZero()):
		p.wrong(at, path, "unlimited has no unit")
		return 0
	case l.Unlimited:
		return 0
	case length == 0:
		p.wrong(at, path, "unit is %s (second, minute, hour, day, week, month or year)", strict.Quote(text))
		return 0
	}
	l.duration, l.multiplier = length, 1
	if !y.UnitMultiplier.IsZero() {
		n, err := yamlvalue.Int(path+": unit_multiplier", &y.UnitMultiplier, 1, int64(window.DurationMax/length))
		if p.ok(err) {
			l.duration, l.multiplier = time.Duration(n)*length, uint32(n)
		}
	}
	return unit
}

// unitDuration returns the length of a unit, or 0 for an unknown unit. The units of overrides have the same numbers.
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

// wholeUnits expresses a window as a multiple of the largest unit that divides it. If no unit does, it returns seconds,
// rounded up.
func wholeUnits(d time.Duration) (rlsv3.RateLimitResponse_RateLimit_Unit, uint32) {
	for unit := rlsv3.RateLimitResponse_RateLimit_DAY; unit > rlsv3.RateLimitResponse_RateLimit_SECOND; unit-- {
		if length := unitDuration(int32(unit)); d >= length && d%length == 0 {
			return unit, uint32(d / length)
		}
	}
	return rlsv3.RateLimitResponse_RateLimit_SECOND, uint32((d + time.Second - 1) / time.Second)
}
