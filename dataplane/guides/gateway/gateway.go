package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/streamed"
)

const (
	bodyBytesMax  = 1 << 20
	lineBytesMax  = 1 << 20
	tokensDefault = 1024   // of an answer whose request names no maximum
	tokensMax     = 32_768 // of an answer
	writeWithin   = 30 * time.Second
	answersMax    = 200 // at the same time
	orgAnswersMax = 50  // of an organisation
)

// gateway stands before a language model. It forwards prompts, streams answers back, and holds the tokens of each
// organisation, and of each model, to a limit in any window. An organisation has a share of the answers that are under
// way at the same time, so that none takes all connections and all memory. Fields are constant.
type gateway struct {
	limiter  *dataplane.Limiter
	upstream string            // of the model's API: http://host:port
	client   *http.Client      // that calls it
	orgs     map[string]string // organisations by their API keys
	window   time.Duration     // of limits
	orgLimit int64             // tokens of an organisation
	models   map[string]int64  // tokens of each model
	streams  *streamed.Streams // of this node
}

func (g *gateway) handler() http.Handler {
	tokens := &httplimit.Streamed{Streams: g.streams, Reserve: g.reserve}
	// The share comes first: an organisation that is over it takes no place of all, and its body is not read.
	share := g.atOnce("org-answers", orgAnswersMax, func(c httplimit.Call) (string, bool) {
		return g.org(c.Header())
	})
	all := g.atOnce("answers", answersMax, httplimit.Everybody)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions",
		g.authenticate(share.Handler(all.Handler(tokens.Handler(http.HandlerFunc(g.complete))))))
	return mux
}

// atOnce limits how many answers are under way at the same time.
func (g *gateway) atOnce(namespace string, limit int64,
	key func(httplimit.Call) (string, bool)) *httplimit.Concurrency {
	return &httplimit.Concurrency{Limiter: g.limiter, Workspace: "gateway", Namespace: namespace, Limit: limit, Key: key}
}

func (g *gateway) org(h http.Header) (string, bool) {
	key, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	org, ok := g.orgs[key]
	return org, ok
}

func (g *gateway) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := g.org(r.Header); !ok {
			http.Error(w, "the API key is not known", http.StatusUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyBytesMax)
		next.ServeHTTP(w, r)
	})
}

// prompt has the fields of a request that the gateway reads.
type prompt struct {
	Model     string `json:"model"`
	MaxTokens int64  `json:"max_tokens"`
	Messages  []struct {
		Content string `json:"content"`
	} `json:"messages"`
}

// estimate returns about how many tokens the prompt has: a token is some four bytes of English. The model returns the
// exact number with the end of its answer.
func (p *prompt) estimate() (tokens int64) {
	for _, m := range p.Messages {
		tokens += 4 + int64(len(m.Content)+3)/4
	}
	return tokens
}

// read reads a request's body, and puts it back.
func read(r *http.Request) (*prompt, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p := prompt{MaxTokens: tokensDefault}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, fmt.Errorf("the body is no JSON of a prompt: %w", err)
	}
	if p.MaxTokens < 1 || p.MaxTokens > tokensMax {
		return nil, fmt.Errorf("max_tokens is %d (1 to %d)", p.MaxTokens, tokensMax)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return &p, nil
}

// reserve returns a request for the most tokens that an answer may take: the tokens of the prompt plus those that the
// request allows. It counts them for the organisation and for the model.
func (g *gateway) reserve(r *http.Request) (dataplane.ReserveRequest, error) {
	p, err := read(r)
	if err != nil {
		return dataplane.ReserveRequest{}, err
	}
	limit, ok := g.models[p.Model]
	if !ok {
		return dataplane.ReserveRequest{}, fmt.Errorf("model is %q, which is not served", p.Model)
	}
	org, _ := g.org(r.Header)
	key := func(namespace, identifier string, limit int64) dataplane.Request {
		return dataplane.Request{Workspace: "gateway", Namespace: namespace, Identifier: identifier, Limit: limit,
			Duration: g.window, Cost: p.estimate() + p.MaxTokens}
	}
	return dataplane.ReserveRequest{Returned: true, Holder: "gateway",
		Requests: []dataplane.Request{key("org-tokens", org, g.orgLimit), key("model-tokens", p.Model, limit)}}, nil
}

// complete forwards a prompt and streams the answer back. The tokens of the answer count, however it ends.
func (g *gateway) complete(w http.ResponseWriter, r *http.Request) {
	meter := streamed.MeterOf(r.Context())
	p, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodPost, g.upstream+"/v1/chat/completions", r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	ask.Header.Set("Content-Type", "application/json")
	answer, err := g.client.Do(ask)
	if err != nil {
		http.Error(w, "the model does not answer", http.StatusBadGateway)
		return
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		http.Error(w, fmt.Sprintf("the model answers with status %d", answer.StatusCode), http.StatusBadGateway)
		return
	}
	meter.Spent(p.estimate())
	w.Header().Set("Content-Type", "text/event-stream")
	if err := stream(w, answer.Body, meter); err != nil {
		panic(http.ErrAbortHandler) // the caller sees that the answer is cut off
	}
}

// event has the fields of a piece of an answer that the gateway reads.
type event struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// stream copies server-sent events as they arrive, and counts tokens: a token for each piece, and in the end the number
// that the model returns.
func stream(w http.ResponseWriter, from io.Reader, meter *streamed.Meter) error {
	out := http.NewResponseController(w)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, lineBytesMax)
	ended := false
	for lines.Scan() {
		line := lines.Bytes()
		// A caller that does not read keeps its reservation, and a connection to the model, no longer than this.
		if err := out.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			ended = ended || string(data) == "[DONE]"
			count(meter, data)
		}
		if _, err := fmt.Fprintf(w, "%s\n", line); err != nil {
			return err
		}
		if len(line) == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil || ended {
		return err
	}
	return errors.New("the model's answer is cut off")
}

func count(meter *streamed.Meter, data []byte) {
	var e event
	if json.Unmarshal(data, &e) != nil {
		return
	}
	for _, choice := range e.Choices {
		if choice.Delta.Content != "" {
			meter.Spent(1)
		}
	}
	if e.Usage != nil {
		meter.InAll(e.Usage.TotalTokens)
	}
}
