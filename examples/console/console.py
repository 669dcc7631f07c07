#!/usr/bin/python3
# SPDX-License-Identifier: PostgreSQL
"""A live console for sas: sas renders the pages, this sends them.

    apt-get install python3-aiohttp python3-psycopg
    console.py --dsn "host=/var/run/postgresql dbname=shop" --port 8480

Whoever logs in is a role of PostgreSQL, and sees and does what that role may: this program has no rights of its
own. It knows neither states nor rules. See docs/how-to/console.md.
"""

import argparse
import asyncio
import hmac
import html
import json
import pathlib
import secrets
import time

import psycopg
from aiohttp import web

HERE = pathlib.Path(__file__).parent
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
}
IDLE = 3600        # seconds after which a session has to log in again
MANY = 10000       # what sas.find_runs returns at most: a verb for all runs of a search takes them in turns

# What each verb is called with: %(name)s come from the form, always as text. {new_key}: a box that is ticked.
RUN = {"pause": "", "resume": "", "retry": ", nullif(%(step)s, ''), %(new_key)s = 'yes'", "cancel": ", %(reason)s", "compensate": ", %(reason)s",
       "halt": ", %(reason)s", "rerun": "", "set_priority": ", %(priority)s::int", "skip": ", %(step)s, nullif(%(output)s, '')::jsonb",
       "force_complete": ", %(step)s, %(output)s::jsonb", "set_input": ", %(step)s, %(input)s::jsonb",
       "set_version": ", nullif(%(version)s, '')::int", "set_start_at": ", %(start_at)s::timestamptz"}
# Each returns what it was called for, whether that changed, its state, and why not.
VERBS = {verb: f"SELECT concat('run ', run_id, ' step ' || step), changed, state, refused FROM sas.{verb}(%(run_id)s::bigint{more})" for verb, more in RUN.items()}
VERBS |= {f"{verb}_{thing}": f"SELECT %(name)s::text, sas.{verb}_{thing}(%(name)s), NULL, NULL"
          for verb in ("pause", "resume") for thing in ("agent", "queue", "workflow", "schedule")}
VERBS |= {
    "reset_agent": "SELECT %(name)s::text, true, NULL, NULL FROM sas.reset_agent(%(name)s)",
    "pause_schedule": "SELECT %(name)s::text, sas.pause_schedule(%(name)s, %(reason)s), NULL, NULL",
    "trigger_schedule": """SELECT coalesce('run ' || run_id, 'no run'), created, NULL, CASE WHEN run_id IS NULL THEN 'its overlap rule skips it' ELSE 'it is open already' END
        FROM sas.trigger_schedule(%(name)s)""",
    "signal": "SELECT 'run ' || %(run_id)s::bigint, true, NULL, NULL FROM sas.signal(%(run_id)s::bigint, %(name)s, %(payload)s::jsonb)",
    "acknowledge": "SELECT 'alert ' || %(alert_id)s::bigint, changed, NULL, refused FROM sas.acknowledge(%(alert_id)s::bigint)",
}
VERBS |= {verb: f"SELECT 'key ' || key, changed, state, refused FROM sas.{verb}(%(name)s, ARRAY[%(key)s])" for verb in ("pause_watch", "resume_watch", "unwatch")}
BULK = ("pause", "resume", "retry", "cancel", "compensate", "halt", "rerun")
BACK = {"agent": "/agents", "queue": "/queues", "workflow": "/workflows", "schedule": "/schedules", "watch": "/watches", "unwatch": "/watches", "acknowledge": "/alerts", "bulk": "/runs"}


class Session:
    """Somebody who has logged in: a connection as that role, used by one request at a time."""

    def __init__(self, role, conninfo, connection):
        self.role, self.conninfo, self.connection = role, conninfo, connection
        self.token, self.lock, self.used, self.notice = secrets.token_urlsafe(32), asyncio.Lock(), time.monotonic(), ""

    async def query(self, sql, args=(), reason=None):
        """One transaction; after a failure of the connection, once more on a new one where nothing was written."""
        async with self.lock:
            self.used = time.monotonic()
            if self.connection.closed:
                self.connection = await connect(self.conninfo)
            async with self.connection.transaction():
                if reason is not None:
                    await self.connection.execute("SELECT set_config('sas.reason', %s, true)", [reason])
                cursor = await self.connection.execute(sql, args)
                return await cursor.fetchall() if cursor.description else []


async def connect(conninfo):
    connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
    await connection.execute("SET statement_timeout = '30 s'")
    return connection


class Console:
    def __init__(self, options):
        self.dsn, self.root, self.secure = options.dsn, options.root.rstrip("/"), options.secure
        self.sessions, self.failures = {}, {}
        self.application = web.Application(middlewares=[self.guard], client_max_size=1 << 20)
        self.application.add_routes([
            web.get(self.root + "/login", self.login), web.post(self.root + "/login", self.log_in), web.post(self.root + "/logout", self.log_out),
            web.get(self.root + "/console.js", self.script), web.get(self.root + "/events", self.events), web.post(self.root + "/do/{verb}", self.act),
            web.get(self.root + "/{path:.*}", self.page),
        ])
        self.application.on_cleanup.append(self.close)

    async def close(self, _):
        for session in self.sessions.values():
            await session.connection.close()

    @web.middleware
    async def guard(self, request, handler):
        """No request that changes something from another site; no answer without its headers."""
        try:
            site = request.headers.get("Sec-Fetch-Site", "same-origin")
            origin = request.headers.get("Origin", "")
            if request.method == "POST" and (site not in ("same-origin", "none") or origin and origin.split("//")[-1] != request.host):
                raise web.HTTPForbidden(text="The form comes from another site.")
            answer = await handler(request)
        except web.HTTPException as e:
            answer = e
        if not answer.prepared:
            answer.headers.update(HEADERS)
        if isinstance(answer, web.HTTPException):
            raise answer
        return answer

    def session(self, request):
        session = self.sessions.get(request.cookies.get("sas", ""))
        if session is None or time.monotonic() - session.used > IDLE:
            raise web.HTTPSeeOther(self.root + "/login")
        return session

    async def form(self, request, token):
        """The fields of a form that carries the token of its session."""
        form = {key: str(value) for key, value in (await request.post()).items()}
        if not hmac.compare_digest(form.pop("token", "").encode(), token.encode()):
            raise web.HTTPForbidden(text="The form is not one of this session. Load the page again.")
        return form

    # -- logging in ------------------------------------------------------------------------------------------

    async def login(self, request, message="", status=200):
        token = request.cookies.get("sas_login") or secrets.token_urlsafe(32)
        text = (HERE / "login.html").read_text()
        for name, value in {"root": self.root, "token": token, "message": message}.items():
            text = text.replace("{" + name + "}", html.escape(value))
        answer = web.Response(text=text, content_type="text/html", status=status)
        answer.set_cookie("sas_login", token, httponly=True, samesite="Strict", secure=self.secure, path=self.root or "/")
        return answer

    async def log_in(self, request):
        form = await self.form(request, request.cookies.get("sas_login", "") or secrets.token_hex())
        self.failures = {k: v for k, v in self.failures.items() if v[1] > time.monotonic() - 60}
        role, password = form.get("role", ""), form.get("password", "")
        # for an empty one libpq would take the user, or the password, of whoever runs this program; no name is longer
        if not role or not password or len(role.encode()) > 63:
            return await self.login(request, "No such role, or another password.", 403)
        tries, _ = self.failures.get(role, (0, 0))
        if tries >= 5:
            return await self.login(request, "Too many attempts. Wait a minute.", 429)
        # counted before it is known: attempts may run beside each other
        self.failures[role] = (tries + 1, time.monotonic())
        conninfo = psycopg.conninfo.make_conninfo(self.dsn, user=role, password=password, application_name="sas console", client_encoding="UTF8", connect_timeout=10)
        try:
            connection = await connect(conninfo)
            # where pg_hba.conf trusts this program, anybody could be anybody
            if not connection.pgconn.used_password:
                await connection.close()
                raise psycopg.OperationalError("not asked for a password")
        except psycopg.OperationalError:
            return await self.login(request, "No such role, or another password.", 403)
        self.failures.pop(role, None)
        for key in [k for k, s in self.sessions.items() if time.monotonic() - s.used > IDLE]:
            await self.sessions.pop(key).connection.close()
        key = secrets.token_urlsafe(32)
        self.sessions[key] = Session(role, conninfo, connection)
        answer = web.HTTPSeeOther(self.root + "/")
        answer.set_cookie("sas", key, httponly=True, samesite="Strict", secure=self.secure, path=self.root or "/")
        return answer

    async def log_out(self, request):
        session = self.session(request)
        await self.form(request, session.token)
        del self.sessions[request.cookies["sas"]]
        await session.connection.close()
        answer = web.HTTPSeeOther(self.root + "/login")
        answer.del_cookie("sas", path=self.root or "/")
        return answer

    # -- pages -----------------------------------------------------------------------------------------------

    async def script(self, request):
        return web.Response(text=(HERE / "console.js").read_text(), content_type="text/javascript")

    async def render(self, session, path, args):
        args = args | {"root": self.root, "token": session.token}
        return (await session.query("SELECT sas.console_page(%s, %s::jsonb)", [path, json.dumps(args)]))[0][0]

    async def page(self, request):
        session = self.session(request)
        try:
            args = {k: v for k, v in request.query.items() if v and k not in ("root", "token", "notice")}
            if "X-Follow" not in request.headers:
                args["notice"], session.notice = session.notice, ""
            return web.Response(text=await self.render(session, "/" + request.match_info["path"], args), content_type="text/html")
        except psycopg.Error as e:
            return await self.refused(session, e)

    async def refused(self, session, error):
        """What PostgreSQL says, as a page; one who may not even see pages is told in plain text."""
        d = error.diag
        status = {"42704": 404, "42501": 403, "22023": 400, "57014": 504}.get(error.sqlstate, 409 if error.sqlstate else 400 if isinstance(error, (psycopg.ProgrammingError, psycopg.DataError)) else 503)
        args = {"message": d.message_primary or str(error), "detail": d.message_detail or "", "hint": d.message_hint or "", "code": error.sqlstate or ""}
        try:
            return web.Response(text=await self.render(session, "/error", args), content_type="text/html", status=status)
        except psycopg.Error:
            return web.Response(text=args["message"], status=status)

    async def events(self, request):
        """Server-sent events: one for each NOTIFY that something has changed."""
        session = self.session(request)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", **HEADERS})
        async with await connect(session.conninfo) as connection:
            await connection.execute("LISTEN sas_change")
            await connection.execute("LISTEN sas_alert")
            news, loop = [], asyncio.get_running_loop()
            connection.add_notify_handler(news.append)
            await answer.prepare(request)
            while session in self.sessions.values():
                readable = asyncio.Event()
                # asks for notifications of the next half minute, and takes in those that have come
                await connection.execute("SELECT sas.follow()")
                await answer.write(b"data: change\n\n" if news else b": here\n\n")
                news.clear()
                loop.add_reader(connection.fileno(), readable.set)
                try:
                    await asyncio.wait_for(readable.wait(), 15)
                except asyncio.TimeoutError:
                    pass
                finally:
                    loop.remove_reader(connection.fileno())
        return answer

    # -- verbs -----------------------------------------------------------------------------------------------

    async def act(self, request):
        session, verb = self.session(request), request.match_info["verb"]
        form = await self.form(request, session.token)
        if verb not in VERBS and verb != "bulk":
            raise web.HTTPNotFound(text=f"There is no verb {verb}.")
        if not form.get("reason", "").strip() or form.get("confirm") != "yes":
            raise web.HTTPBadRequest(text="A reason and a confirmation are needed.")
        try:
            if verb == "bulk":
                session.notice = await self.bulk(session, form)
            else:
                asked = {name: "" for name in ("step", "new_key", "version")} | form
                session.notice = self.told(verb, await session.query(VERBS[verb], asked, form["reason"]))
        except KeyError as e:
            raise web.HTTPBadRequest(text=f"{e.args[0]} is missing.") from None
        except psycopg.Error as e:
            return await self.refused(session, e)
        back = next((path for word, path in BACK.items() if word in verb), None)
        raise web.HTTPSeeOther(self.root + (back or f"/runs/{int(form['run_id'])}"))

    @staticmethod
    def told(verb, rows):
        """A line for each thing: changed, or why not."""
        said = [f"{verb}: {what}: " + (", ".join(filter(None, ("done", state))) if changed else refused or "nothing changed") for what, changed, state, refused in rows]
        return "\n".join(said[:20]) + ("\n..." if len(said) > 20 else "") or f"{verb}: nothing changed"

    async def bulk(self, session, form):
        """A verb for all runs that a search finds, 10,000 in a transaction."""
        verb = form["verb"]
        if verb not in BULK:
            raise web.HTTPBadRequest(text=f"{verb} is no verb for many runs.")
        changed, refused, before = 0, {}, None
        reason = ", reason => %(reason)s" if "reason" in RUN[verb] else ""
        sql = f"""WITH found AS MATERIALIZED (SELECT array_agg(run_id) AS ids, min(run_id) AS least FROM sas.find_runs(%(search)s::jsonb || '{{"compare": null}}', {MANY}, %(before)s::bigint))
            SELECT coalesce(cardinality(f.ids), 0), f.least, v.changed, v.refused, count(DISTINCT v.run_id) FROM found f
            LEFT JOIN LATERAL sas.{verb}_runs(f.ids{reason}) v ON f.ids IS NOT NULL GROUP BY 1, 2, 3, 4"""
        while True:
            rows = await session.query(sql, {"search": form["search"], "before": before, "reason": form["reason"]}, form["reason"])
            for _, _, done, why, runs in rows:
                changed += runs if done else 0
                if done is False:
                    why = (why or "nothing changed").split(": ")[-1]
                    refused[why] = refused.get(why, 0) + runs
            if rows[0][0] < MANY:
                return "\n".join([f"{verb}: {changed} runs changed"] + [f"{n} not: {why}" for why, n in sorted(refused.items(), key=lambda r: -r[1])[:10]])
            before = rows[0][1]


def main():
    parser = argparse.ArgumentParser(description="A live console for sas.")
    parser.add_argument("--dsn", default="", help="how to connect, without a role: host, port, dbname, sslmode")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8480)
    parser.add_argument("--root", default="", help="the path in front of all pages, such as /sas")
    parser.add_argument("--secure", action="store_true", help="cookies over HTTPS only: behind a server that speaks TLS")
    options = parser.parse_args()
    web.run_app(Console(options).application, host=options.host, port=options.port, print=lambda _: print("ready", flush=True))


if __name__ == "__main__":
    main()
