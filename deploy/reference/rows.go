package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is a row of the page.
type metric struct {
	kind, help string
	labels     []string            // names
	values     map[string][]string // of labels that have them from the start
}

// rows returns a part's metrics as rows of a table, sorted by name.
func (p *part) rows() (string, error) {
	found, err := p.described()
	if err != nil {
		return "", err
	}
	if err := p.gather(found); err != nil {
		return "", err
	}
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		var labels []string
		for _, label := range m.labels {
			text := "`" + label + "`"
			if values := m.values[label]; len(values) > 0 {
				text += " (" + strings.Join(values, ", ") + ")"
			}
			labels = append(labels, text)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", name, m.kind, strings.Join(labels, "; "), m.help)
	}
	return rows.String(), nil
}

// prometheus.Desc has no other form.
var (
	written = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? ` +
		`constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	labelName = regexp.MustCompile(`[a-zA-Z_]\w*`)
	constName = regexp.MustCompile(`([a-zA-Z_]\w*)="`)
)

// described returns the metrics that a part's collectors describe, also those without a series.
func (p *part) described() (map[string]*metric, error) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, c := range p.collectors {
			c.Describe(descs)
		}
	}()
	found := make(map[string]*metric)
	var unread error
	for d := range descs {
		parts := written.FindStringSubmatch(d.String())
		if parts == nil {
			unread = fmt.Errorf("cannot read %s", d)
			continue
		}
		name, _ := strconv.Unquote(parts[1])
		m := &metric{kind: "gauge"}
		m.help, _ = strconv.Unquote(parts[2])
		for _, constant := range constName.FindAllStringSubmatch(parts[3], -1) {
			m.labels = append(m.labels, constant[1])
		}
		m.labels = append(m.labels, labelName.FindAllString(parts[4], -1)...)
		if strings.HasSuffix(name, "_total") {
			m.kind = "counter"
		}
		found[name] = m
	}
	return found, unread
}

// ownNames are labels whose values are names of an installation, or too many for the page.
var ownNames = []string{"region", "node_id", "build", "shard", "partition", "peer", "domain", "method", "code"}

// gather sets the kind, and the values of labels, of the metrics that have series.
func (p *part) gather(found map[string]*metric) error {
	registry := prometheus.NewRegistry()
	for _, c := range p.collectors {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		m := found[f.GetName()]
		if m == nil {
			return fmt.Errorf("%s is not described", f.GetName())
		}
		m.kind = strings.ToLower(f.GetType().String())
		m.values = make(map[string][]string)
		for _, series := range f.GetMetric() {
			m.addValues(series.GetLabel())
		}
	}
	return nil
}

func (m *metric) addValues(of []*dto.LabelPair) {
	for _, pair := range of {
		name, value := pair.GetName(), pair.GetValue()
		if !slices.Contains(ownNames, name) && !slices.Contains(m.values[name], value) {
			m.values[name] = append(m.values[name], value)
			slices.Sort(m.values[name])
		}
	}
}
