# The Python harness of cowaudit forktest: CPython 3.8 and later, no module but what the interpreter has built in. It comes
# in over standard input, which is a socket, and speaks the line protocol of docs/protocol.md on it. While a process waits
# for an order it blocks in read(2); the collector runs when it is told to and never else.
import gc
import os
import sys
import time

EVENTS = ("null", "first_collection", "second_collection")
ORDER_BYTES = 4096


class Harness:
    def main(self):
        self.take_over_stdin()
        self.writers = []
        self.pids = []
        self.defined = {}
        version = "%s %s" % (sys.implementation.name, sys.version.replace("\n", " "))
        self.say("hello", protocol=1, runtime="python", version=version,
                 orders="load,preload,define,settle,warmup,fork", events=",".join(EVENTS))
        orders = {"load": self.load, "preload": self.preload, "define": self.define, "settle": self.settle,
                  "warmup": self.warmup, "fork": self.fork}
        while True:
            line = self.read_line()
            if line is None or line == "quit":
                break
            word, args = parse(line)
            if word not in orders:
                self.fail("Unknown", "order %s is not known" % word)
            self.guard(orders[word], args)
        for fd in self.writers:
            os.close(fd)
        for pid in self.pids:
            try:
                os.waitpid(pid, 0)
            except OSError:
                pass
        os._exit(0)

    def take_over_stdin(self):
        """The application gets an empty standard input; the control socket moves to a descriptor that exec closes."""
        self.fd = os.dup(0)
        self.rest = b""
        try:
            null = os.open(os.devnull, os.O_RDONLY)
        except OSError:  # a root without /dev
            null, writer = os.pipe()
            os.close(writer)
        os.dup2(null, 0)
        os.close(null)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.reconfigure(line_buffering=True)
            except AttributeError:
                pass

    def read_line(self):
        while b"\n" not in self.rest:
            more = os.read(self.fd, 1 << 16)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode("utf-8", "surrogateescape")

    def say(self, word, **args):
        self.send("".join([word] + [" %s=%s" % (k, encode(str(v))) for k, v in args.items()]) + "\n")

    def send(self, line):
        data = line.encode("utf-8", "surrogateescape")
        try:
            while data:
                data = data[os.write(self.fd, data):]
        except OSError:
            os._exit(1)  # nobody listens any more

    def guard(self, order, args):
        try:
            order(args)
        except SystemExit as e:
            self.fail("SystemExit", "the application called sys.exit(%s)" % (e.code,))
        except BaseException as e:
            import traceback
            traceback.print_exc()
            frame = e.__traceback__
            while frame.tb_next:
                frame = frame.tb_next
            at = "%s:%d" % (frame.tb_frame.f_code.co_filename, frame.tb_lineno)
            self.fail(type(e).__name__, str(e), at=at)

    def fail(self, kind, message, **args):
        args.update({"class": kind, "message": message})
        self.say("error", **args)
        os._exit(1)

    def namespace(self):
        """The module that the application runs in; it keeps the application's globals alive."""
        if "cowaudit_app" not in sys.modules:
            sys.modules["cowaudit_app"] = type(sys)("cowaudit_app")
        return sys.modules["cowaudit_app"].__dict__

    def load(self, args):
        if "app" in args:
            path = args["app"]
            sys.path[0:1] = [os.path.dirname(path)]
            space = self.namespace()
            space["__file__"] = path
            exec(compile(args["source"], path, "exec"), space)
        elif args.get("scenario") == "tracked-objects":
            count = int(args["objects"])
            # Objects that the collector tracks, and objects that it does not.
            self.namespace()["BOXES"] = [[i] for i in range(count)]
            self.namespace()["TEXTS"] = ["value %d" % i for i in range(count)]
        else:
            raise ValueError("there is no scenario %s for Python" % args.get("scenario"))
        self.say("loaded")

    def preload(self, args):
        exec(compile(args["source"], args.get("label", "--preload"), "exec"), self.namespace())
        self.say("preloaded")

    def define(self, args):
        """An event of the user's, which the workers inherit."""
        code = compile(args["source"], "--event", "exec")
        self.defined[b"event name=%s\n" % args["name"].encode()] = (args["name"], lambda: exec(code, self.namespace()))
        self.say("defined")

    def settle(self, args):
        """Full collections until one finds nothing more, twice."""
        quiet = args.get("until") == "quiet"
        limit = int(args["limit"] if quiet else args["collections"])
        done = still = 0
        before = None
        while done < limit and not (quiet and still >= 2):
            now = gc.collect()
            done += 1
            still = still + 1 if now == 0 and before == 0 else 0
            before = now
        self.say("settled", collections=done, quiet=int(still >= 2))

    def warmup(self, args):
        gc.collect()
        gc.freeze()
        self.say("warmed")

    def fork(self, args):
        for number in range(1, int(args["workers"]) + 1):
            orders, writer = os.pipe()
            self.writers.append(writer)
            pid = os.fork()
            if pid == 0:
                for fd in self.writers:
                    os.close(fd)
                try:
                    self.serve(orders, number)
                except BaseException as e:
                    self.fail(type(e).__name__, str(e))
            os.close(orders)
            self.pids.append(pid)
            self.say("worker", number=number, pid=pid, orders=writer)
        self.say("ready")

    def serve(self, orders, number):
        gc.disable()  # gc.collect works all the same
        while True:
            order = os.read(orders, ORDER_BYTES)
            if order == b"event name=null\n":
                self.event("null", number, None)
            elif order == b"event name=first_collection\n":
                self.event("first_collection", number, gc.collect)
            elif order == b"event name=second_collection\n":
                self.event("second_collection", number, gc.collect)
            elif order in self.defined:
                name, work = self.defined[order]
                self.event(name, number, work)
            elif order in (b"", b"quit\n"):
                os._exit(0)
            else:
                self.fail("Unknown", "order %r is not known" % order)

    def event(self, name, number, work):
        start = time.monotonic_ns()
        if work:
            work()
        took = time.monotonic_ns() - start
        full = gc.get_stats()[2]["collections"]
        self.send("done event=%s worker=%d duration_ns=%d full_collections=%d frozen_objects=%d\n"
                  % (name, number, took, full, gc.get_freeze_count()))


def encode(text):
    return "".join("%%%02X" % ord(c) if c <= " " or c in "%\x7f" else c for c in text)


def parse(line):
    word, *rest = line.split(" ")
    args = {}
    for pair in rest:
        key, _, value = pair.partition("=")
        parts = value.encode("utf-8", "surrogateescape").split(b"%")
        raw = parts[0] + b"".join(bytes([int(p[:2], 16)]) + p[2:] for p in parts[1:])
        args[key] = raw.decode("utf-8", "surrogateescape")
    return word, args


Harness().main()
