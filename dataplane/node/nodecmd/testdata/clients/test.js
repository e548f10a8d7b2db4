// Speaks to a weir-node with the real client packages, and fails loudly where an answer is not what they promise
// their users.
//
//	node test.js MODE URL TOKEN
//
// MODE is all (overrides can be changed), off (they cannot), down (their store does not answer), crash (the limiter
// panics) or busy (the node has no free slot: `node test.js busy` takes it with a body that never ends).
import assert from "node:assert/strict";
import { Unkey } from "@unkey/api";
import * as errors from "@unkey/api/models/errors";
import { Overrides, Ratelimit } from "@unkey/ratelimit";

const [mode, url, token] = process.argv.slice(2);
const once = { retries: { strategy: "none" } };
const namespace = "email.outbound";
const unique = `${process.pid}`;
const minute = 60_000;
// A duration whose cell does not end while the tests run, whatever the time of day.
const hours = [24, 25, 27, 29].map((h) => h * 60 * minute);
const lasting = hours.find((d) => d - (Date.now() % d) > 15 * minute);

const api = new Unkey({ serverURL: url, rootKey: token });
const overrides = new Overrides({ baseUrl: url, rootKey: token });
const limits = (limit, duration = lasting) => new Ratelimit({ baseUrl: url, rootKey: token, namespace, limit, duration });

const calls = {
	limit: (client = api) => client.ratelimit.limit({ namespace, identifier: "x", limit: 1, duration: minute }, once),
	multiLimit: (client = api) => client.ratelimit.multiLimit([{ namespace, identifier: "x", limit: 1, duration: minute }], once),
	setOverride: (client = api) => client.ratelimit.setOverride({ namespace, identifier: "x", limit: 1, duration: minute }, once),
	getOverride: (client = api) => client.ratelimit.getOverride({ namespace, identifier: "missing" }, once),
	listOverrides: (client = api) => client.ratelimit.listOverrides({ namespace }, once),
	deleteOverride: (client = api) => client.ratelimit.deleteOverride({ namespace, identifier: "missing" }, once),
};
const overrideCalls = ["setOverride", "getOverride", "listOverrides", "deleteOverride"];

// refused wants a call to end as one of the package's own error classes, whole.
async function refused(call, Kind, status, contentType = "application/json") {
	await assert.rejects(call, (e) => {
		assert.equal(e.constructor.name, Kind.name, `${e.constructor.name}: ${e.message}`);
		assert.equal(e.statusCode, status);
		assert.ok(e.headers.get("content-type").startsWith(contentType), e.headers.get("content-type"));
		const { meta, error } = Kind === errors.APIError ? JSON.parse(e.body) : e;
		assert.match(meta.requestId, /^req_\w+$/);
		assert.equal(error.status, status);
		for (const field of ["title", "detail", "type"]) assert.ok(error[field].length > 0, field);
		return true;
	});
}

function inOrder(list) {
	return list.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

// until polls: nodes read overrides every few seconds.
async function until(what, condition) {
	for (const deadline = Date.now() + 60_000; ; ) {
		if (await condition()) return;
		assert.ok(Date.now() < deadline, `waited a minute in vain: ${what}`);
		await new Promise((resolve) => setTimeout(resolve, 100));
	}
}

const modes = {
	async limit() {
		const ratelimit = limits(3, `${lasting / 1000}s`);
		const user = `user:${unique}/ü 🙂`;
		for (const remaining of [2, 1, 0]) {
			const before = Date.now();
			const answer = await ratelimit.limit(user);
			assert.equal(answer.success, true);
			assert.deepEqual([answer.limit, answer.remaining, answer.overrideId], [3, remaining, undefined]);
			assert.ok(answer.reset > before && answer.reset <= Date.now() + lasting && answer.reset % lasting === 0, `reset ${answer.reset}`);
		}
		const denied = await ratelimit.limit(user);
		assert.deepEqual([denied.success, denied.limit, denied.remaining], [false, 3, 0]);
		assert.equal((await limits(10).limit(`cost ${unique}`, { cost: 7 })).remaining, 3);
		assert.equal((await limits(10).limit(`cost ${unique}`, { cost: 0 })).remaining, 3);
		assert.equal((await limits(10).limit(`cost ${unique}`, { cost: 4 })).success, false);
		assert.equal((await limits(10).limit(`cost ${unique}`, { limit: { limit: 20, duration: lasting } })).remaining, 12);

		const { meta, data } = await api.ratelimit.limit({ namespace, identifier: `api ${unique}`, limit: 5, duration: lasting });
		assert.match(meta.requestId, /^req_\w+$/);
		assert.deepEqual([data.success, data.limit, data.remaining], [true, 5, 4]);
	},

	async multiLimit() {
		const check = (identifier, limit, cost) => ({ namespace, identifier: `${identifier} ${unique}`, limit, duration: lasting, cost });
		const first = await api.ratelimit.multiLimit([check("a", 10, 1), check("b", 10, 9)]);
		assert.equal(first.data.passed, true);
		assert.deepEqual(first.data.limits.map((l) => [l.namespace, l.identifier, l.passed, l.limit, l.remaining]), [
			[namespace, `a ${unique}`, true, 10, 9],
			[namespace, `b ${unique}`, true, 10, 1],
		]);
		// One that does not pass keeps all from being counted; each says so for itself.
		const second = await api.ratelimit.multiLimit([check("a", 10, 1), check("b", 10, 5)]);
		assert.equal(second.data.passed, false);
		assert.deepEqual(second.data.limits.map((l) => [l.passed, l.remaining]), [[true, 9], [false, 1]]);
		const hundred = await api.ratelimit.multiLimit(Array.from({ length: 100 }, (_, i) => check(`many-${i}`, 1)));
		assert.deepEqual([hundred.data.passed, hundred.data.limits.length], [true, 100]);
	},

	async overrides() {
		const pattern = `vip_${unique}_*`;
		const { data: set } = await overrides.setOverride({ namespace, identifier: pattern, limit: 1000, duration: minute });
		assert.ok(set.overrideId.length > 0);
		const { data: got } = await overrides.getOverride({ namespace, identifier: pattern });
		assert.deepEqual({ ...got }, { overrideId: set.overrideId, identifier: pattern, limit: 1000, duration: minute });
		const again = await overrides.setOverride({ namespace, identifier: pattern, limit: 2000, duration: 2 * minute });
		assert.equal(again.data.overrideId, set.overrideId);
		assert.equal((await overrides.getOverride({ namespace, identifier: pattern })).data.limit, 2000);

		await until("a node applies the override", async () => {
			const answer = await limits(3).limit(`vip_${unique}_7`, { cost: 0 });
			assert.ok(answer.limit === 2000 || answer.limit === 3, `limit ${answer.limit}`);
			if (answer.limit === 3) return false;
			assert.equal(answer.overrideId, set.overrideId);
			return true;
		});
		const { data } = await api.ratelimit.multiLimit([{ namespace, identifier: `vip_${unique}_7`, limit: 3, duration: minute }]);
		assert.deepEqual([data.limits[0].limit, data.limits[0].overrideId], [2000, set.overrideId]);

		assert.deepEqual({ ...(await overrides.deleteOverride({ namespace, identifier: pattern })).data }, {});
		await refused(() => api.ratelimit.getOverride({ namespace, identifier: pattern }, once), errors.NotFoundErrorResponse, 404);
		await refused(() => api.ratelimit.deleteOverride({ namespace, identifier: pattern }, once), errors.NotFoundErrorResponse, 404);
		await until("a node forgets the override", async () => (await limits(3).limit(`vip_${unique}_8`, { cost: 0 })).limit === 3);
	},

	async pages() {
		const paged = `pages-${unique}`;
		const identifiers = Array.from({ length: 23 }, (_, i) => `user_${i}`).concat("A", "a", "a ", "ä", "*");
		for (const identifier of identifiers) await overrides.setOverride({ namespace: paged, identifier, limit: 1, duration: minute });
		for (const limit of [undefined, 1, 28, 100]) {
			const seen = [];
			let cursor;
			do {
				const page = await overrides.listOverrides({ namespace: paged, cursor, limit });
				assert.ok(page.data.length <= (limit ?? 10) && page.data.length > 0);
				seen.push(...page.data.map((o) => o.identifier));
				assert.equal(page.pagination.hasMore, page.pagination.cursor !== undefined);
				cursor = page.pagination.cursor;
			} while (cursor);
			assert.deepEqual(seen, inOrder(identifiers));
		}
		const none = await overrides.listOverrides({ namespace: `none-${unique}` });
		assert.deepEqual([none.data.length, none.pagination.hasMore], [0, false]);
	},

	async atFault() {
		const bad = async (call, ...locations) => {
			await refused(call, errors.BadRequestErrorResponse, 400);
			await call().catch((e) => assert.deepEqual(e.error.errors.map((v) => v.location), locations));
		};
		const r = api.ratelimit;
		const check = { namespace, identifier: "x", limit: 1, duration: minute };
		await bad(() => r.limit({ namespace: "", identifier: "", limit: -1, duration: 999, cost: -1 }, once),
			"body.namespace", "body.identifier", "body.limit", "body.duration", "body.cost");
		await bad(() => r.multiLimit([check, { ...check, limit: -1 }, { ...check, namespace: "é".repeat(128) }], once), "body[1].limit", "body[2].namespace");
		await bad(() => r.multiLimit([], once), "body");
		await bad(() => r.multiLimit(Array(101).fill(check), once), "body");
		await bad(() => r.setOverride({ namespace, identifier: "", limit: -1, duration: 0 }, once), "body.identifier", "body.limit", "body.duration");
		await bad(() => r.getOverride({ namespace: "", identifier: "" }, once), "body.namespace", "body.identifier");
		await bad(() => r.deleteOverride({ namespace: "", identifier: "" }, once), "body.namespace", "body.identifier");
		await bad(() => r.listOverrides({ namespace, limit: 101, cursor: "!" }, once), "body.limit", "body.cursor");
		// Through the other package too, and its own way to handle it.
		let told;
		const ratelimit = new Ratelimit({ baseUrl: url, rootKey: token, namespace, limit: 1, duration: 1, onError: (e) => ((told = e), { success: true, limit: 0, remaining: 0, reset: 0 }) });
		assert.equal((await ratelimit.limit("x")).success, true);
		assert.match(told.message, /body\.duration/);
	},

	async strangers() {
		for (const rootKey of ["", "wrong"]) {
			for (const call of Object.values(calls)) {
				await refused(() => call(new Unkey({ serverURL: url, rootKey })), errors.UnauthorizedErrorResponse, 401);
			}
		}
	},

	// What the packages never send, but people with curl do.
	async plainHTTP() {
		const post = (path, init) => fetch(url + path, { method: "POST", headers: { authorization: `Bearer ${token}`, "content-type": "application/json" }, ...init });
		for (const [path, init, status] of [
			["/v2/ratelimit.nothing", { body: "{}" }, 404],
			["/v2/ratelimit.limit", { method: "GET" }, 405],
			["/v2/ratelimit.limit", { body: "{}", headers: { authorization: `Bearer ${token}`, "content-type": "text/plain" } }, 415],
			["/v2/ratelimit.limit", { body: " ".repeat(20_000) }, 413],
		]) {
			const answer = await post(path, init);
			const { meta, error } = await answer.json();
			assert.deepEqual([answer.status, error.status, answer.headers.get("content-type")], [status, status, "application/json"]);
			assert.match(meta.requestId, /^req_\w+$/);
		}
	},

	async all() {
		for (const test of ["limit", "multiLimit", "overrides", "pages", "atFault", "strangers", "plainHTTP"]) await modes[test]();
		for (const name of ["getOverride", "deleteOverride"]) await refused(calls[name], errors.NotFoundErrorResponse, 404);
	},

	async off() {
		await modes.limit();
		await modes.multiLimit();
		for (const name of overrideCalls) await refused(calls[name], errors.ForbiddenErrorResponse, 403);
	},

	async down() {
		await modes.limit();
		for (const name of overrideCalls) await refused(calls[name], errors.APIError, 503);
	},

	async crash() {
		for (const name of ["limit", "multiLimit"]) await refused(calls[name], errors.InternalServerErrorResponse, 500);
	},

	async busy() {
		for (const call of Object.values(calls)) await refused(call, errors.TooManyRequestsErrorResponse, 429, "application/problem+json");
	},
};

await modes[mode]();
console.log(`${mode}: ok`);
