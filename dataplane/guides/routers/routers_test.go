package routers

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/labstack/echo/v5"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// newGuard allows each API key three requests per day.
func newGuard(limiter *dataplane.Limiter) (*httplimit.Guard, error) {
	return httplimit.New(httplimit.Config{
		Limiter: limiter,
		Policies: []httplimit.Policy{{
			Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
			Quota: httplimit.Quota{Limit: 3, Duration: 24 * time.Hour},
		}},
	})
}

func chiRouter(guard *httplimit.Guard) http.Handler {
	r := chi.NewRouter()
	r.Get("/about", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "free") })
	r.Route("/api", func(r chi.Router) {
		r.Use(guard.Handler)
		r.Get("/users/{name}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, chi.URLParam(r, "name")) })
	})
	return r
}

func echoRouter(guard *httplimit.Guard) http.Handler {
	e := echo.New()
	e.GET("/about", func(c *echo.Context) error { return c.String(http.StatusOK, "free") })
	api := e.Group("/api", echo.WrapMiddleware(guard.Handler))
	api.GET("/users/:name", func(c *echo.Context) error { return c.String(http.StatusOK, c.Param("name")) })
	return e
}

func ginRouter(guard *httplimit.Guard) http.Handler {
	r := gin.New()
	r.GET("/about", func(c *gin.Context) { c.String(http.StatusOK, "free") })
	api := r.Group("/api", wrap(guard.Handler))
	api.GET("/users/:name", func(c *gin.Context) { c.String(http.StatusOK, c.Param("name")) })
	return r
}

// wrap makes gin's middleware of net/http's.
func wrap(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort() // the middleware has answered
		}
	}
}

func fiberRouter(guard *httplimit.Guard) *fiber.App {
	app := fiber.New()
	app.Get("/about", func(c fiber.Ctx) error { return c.SendString("free") })
	api := app.Group("/api", adaptor.HTTPMiddleware(guard.Handler))
	api.Get("/users/:name", func(c fiber.Ctx) error { return c.SendString(c.Params("name")) })
	return app
}

// slots lets each API key have a single request under way at a time.
func slots(limiter *dataplane.Limiter) *httplimit.Concurrency {
	return &httplimit.Concurrency{
		Limiter: limiter, Workspace: "acme", Namespace: "under-way", Key: httplimit.Header("X-Api-Key"), Limit: 1,
	}
}

func alone(t *testing.T) *dataplane.Limiter {
	t.Helper()
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

// serve serves each router with a guard of its own on a port.
func serve(t *testing.T) (urls map[string]string) {
	t.Helper()
	gin.SetMode(gin.ReleaseMode)
	urls = map[string]string{}
	guarded := func() *httplimit.Guard {
		guard, err := newGuard(alone(t))
		if err != nil {
			t.Fatal(err)
		}
		return guard
	}
	for name, router := range map[string]http.Handler{
		"chi": chiRouter(guarded()), "echo": echoRouter(guarded()), "gin": ginRouter(guarded()),
	} {
		server := httptest.NewServer(router)
		t.Cleanup(server.Close)
		urls[name] = server.URL
	}
	urls["fiber"] = serveFiber(t, fiberRouter(guarded()))
	return urls
}

func serveFiber(t *testing.T, app *fiber.App) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		if err := app.Shutdown(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String()
}

// get sends a request with an API key.
func get(t *testing.T, url, key string) (response *http.Response, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	if response, err = http.DefaultClient.Do(r); err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

// Each router runs the handler for requests that pass, with the fields in its response, and answers denied requests
// with httplimit's problem. Routes outside of the group have no limit.
func TestRoutersHoldRequestsToTheLimit(t *testing.T) {
	for name, url := range serve(t) {
		t.Run(name, func(t *testing.T) {
			for left := 2; left >= 0; left-- {
				response, body := get(t, url+"/api/users/ann", "k1")
				want := fmt.Sprintf(`"key";r=%d;t=`, left)
				if got := response.Header.Get("RateLimit"); response.StatusCode != http.StatusOK || body != "ann" || len(got) < len(want) || got[:len(want)] != want {
					t.Errorf("%d %q, RateLimit %s, want %s…", response.StatusCode, body, got, want)
				}
			}
			response, body := get(t, url+"/api/users/ann", "k1")
			var problem httplimit.Problem
			if err := json.Unmarshal([]byte(body), &problem); err != nil {
				t.Errorf("%v in %s", err, body)
			}
			if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" ||
				response.Header.Get("Content-Type") != "application/problem+json" || problem.Status != http.StatusTooManyRequests {
				t.Errorf("%d, %v, %s", response.StatusCode, response.Header, body)
			}
			if response, body := get(t, url+"/api/users/bob", "k2"); response.StatusCode != http.StatusOK || body != "bob" {
				t.Errorf("another key: %d %s", response.StatusCode, body)
			}
			if response, _ := get(t, url+"/api/users/bob", ""); response.StatusCode != http.StatusBadRequest {
				t.Errorf("no key: %d", response.StatusCode)
			}
			for range 5 {
				if response, body := get(t, url+"/about", "k1"); response.StatusCode != http.StatusOK || body != "free" ||
					response.Header.Get("RateLimit") != "" {
					t.Errorf("outside of the group: %d %s", response.StatusCode, body)
				}
			}
		})
	}
}

// fiber uses the memory of a request again for the next request. The limiter keeps copies of keys.
func TestKeysOutliveARequestOfFiber(t *testing.T) {
	limiter := alone(t)
	guard, err := newGuard(limiter)
	if err != nil {
		t.Fatal(err)
	}
	url := serveFiber(t, fiberRouter(guard))
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("key-%02d", i))
		get(t, url+"/api/users/ann", want[i])
	}
	keys, err := limiter.TopKeys(dataplane.TopQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range keys.Keys {
		got = append(got, k.Identifier)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// In chi, echo and gin the middleware returns after the handler, so a slot is held until the handler is done. In fiber
// the middleware returns before the handler runs.
func TestASlotIsHeldWhileTheHandlerRuns(t *testing.T) {
	for name, router := range map[string]func(limit *httplimit.Concurrency, work func()) string{
		"chi": func(limit *httplimit.Concurrency, work func()) string {
			r := chi.NewRouter()
			r.Use(limit.Handler)
			r.Get("/", func(http.ResponseWriter, *http.Request) { work() })
			return listen(t, r)
		},
		"echo": func(limit *httplimit.Concurrency, work func()) string {
			e := echo.New()
			e.Use(echo.WrapMiddleware(limit.Handler))
			e.GET("/", func(*echo.Context) error { work(); return nil })
			return listen(t, e)
		},
		"gin": func(limit *httplimit.Concurrency, work func()) string {
			r := gin.New()
			r.Use(wrap(limit.Handler))
			r.GET("/", func(*gin.Context) { work() })
			return listen(t, r)
		},
		"fiber": func(limit *httplimit.Concurrency, work func()) string {
			app := fiber.New()
			app.Use(adaptor.HTTPMiddleware(limit.Handler))
			app.Get("/", func(fiber.Ctx) error { work(); return nil })
			return serveFiber(t, app)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			began, finish := make(chan bool), make(chan bool)
			url := router(slots(alone(t)), func() {
				if runs.Add(1) == 1 {
					close(began)
					<-finish
				}
			})
			done := make(chan bool)
			go func() {
				defer close(done)
				get(t, url, "k1")
			}()
			<-began
			response, _ := get(t, url, "k1")
			want := http.StatusTooManyRequests
			if name == "fiber" {
				want = http.StatusOK
			}
			if response.StatusCode != want {
				t.Errorf("while the first request is under way: %d, want %d", response.StatusCode, want)
			}
			close(finish)
			<-done
			if response, _ := get(t, url, "k1"); response.StatusCode != http.StatusOK {
				t.Errorf("afterwards: %d", response.StatusCode)
			}
		})
	}
}

func listen(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}
