# frozen_string_literal: true

# The Ruby harness of cowaudit forktest: Ruby 2.7 and later, nothing but the core library. It comes in over standard
# input, which is a socket, and speaks the line protocol of docs/protocol.md on it.
#
# It must disturb what it measures as little as it can: while a process waits for an order it blocks in read(2); a worker
# reads its orders into one buffer that it keeps, and its collector runs when it is told to and never else.
module CowauditHarness
  EVENTS = %w[null first_major_gc second_major_gc].freeze # where the scenario has no others
  STATS = %i[count minor_gc_count major_gc_count heap_allocated_pages heap_eden_pages heap_live_slots heap_free_slots
             old_objects old_objects_limit remembered_wb_unprotected_objects malloc_increase_bytes
             oldmalloc_increase_bytes total_allocated_objects total_freed_objects].freeze
  # Counts that a collection leaves alone once there is nothing left to do. An object that survives is old at its third
  # collection (RVALUE_OLD_AGE), and its age does not show: so they must hold still over as many.
  QUIET = %i[old_objects heap_live_slots heap_allocated_pages].freeze
  QUIET_RUNS = 3
  ORDER_BYTES = 4096

  class << self
    def main
      @scenario = CowauditScenarios::Scenario.new
      say_last
      take_over_stdin
      say("hello", "protocol" => 1, "runtime" => "ruby", "version" => RUBY_DESCRIPTION,
                   "orders" => (Process.respond_to?(:warmup) ? "load,preload,define,settle,warmup,prepare,fork" : "load,preload,define,settle,prepare,fork"),
                   "events" => EVENTS.join(","))
      while (line = @in.gets("\n"))
        word, args = parse(line)
        case word
        when "load" then guard { load_application(args) }
        when "preload" then guard { preload(args) }
        when "define" then guard { define(args) }
        when "settle" then guard { settle(args) }
        when "warmup" then guard { warm_up }
        when "prepare" then guard { prepare }
        when "event" then guard { parent_event(args) }
        when "fork" then guard { fork_workers(args) }
        when "quit" then break
        else fail_with("Unknown", "order #{word} is not known", nil)
        end
      end
      @writers.to_a.each(&:close)
      @pids.to_a.each { |pid| Process.wait(pid) rescue nil }
      exit!(0)
    end

    # A whole number of the application's own, which the event that is running gives: metric("live_bytes", 5).
    def metric(name, value)
      raise ArgumentError, "#{name.inspect} is no name of a metric" unless /\A[a-z][a-z0-9_]*\z/.match?(name)

      (@metrics ||= {})[name] = Integer(value)
    end

    private

    # The application gets an empty standard input. The control socket moves to a descriptor that exec closes.
    def take_over_stdin
      @fd = $stdin.dup
      @fd.close_on_exec = true
      @in = IO.for_fd(@fd.fileno, "rb", autoclose: false)
      @out = IO.for_fd(@fd.fileno, "wb", autoclose: false)
      begin
        $stdin.reopen(File::NULL)
      rescue SystemCallError # a root without /dev
        r, w = IO.pipe
        w.close
        $stdin.reopen(r)
      end
      $stdout.sync = $stderr.sync = true
    end

    def say(word, args = {})
      line = word.dup
      args.each { |k, v| line << " " << k << "=" << encode(v.to_s) }
      send_line(line << "\n")
    end

    def send_line(line)
      done = 0
      done += @out.syswrite(done.zero? ? line : line.byteslice(done..-1)) while done < line.bytesize
    rescue SystemCallError
      exit!(1) # nobody listens any more
    end

    def encode(text)
      text.b.gsub(/[\x00-\x20%\x7f]/n) { |c| format("%%%02X", c.ord) }
    end

    def parse(line)
      word, *rest = line.chomp.split(" ")
      args = rest.each_with_object({}) do |pair, all|
        key, value = pair.split("=", 2)
        all[key] = value.to_s.b.gsub(/%(\h\h)/n) { $1.hex.chr }.force_encoding(Encoding::UTF_8)
      end
      [word, args]
    end

    # A failure of the application is one line for cowaudit; the whole of it goes where the application's output goes.
    def guard
      yield
    rescue SystemExit => e
      fail_with("SystemExit", "the application called exit(#{e.status})", e)
    rescue Exception => e # rubocop:disable Lint/RescueException
      show(e)
      fail_with(e.class.name.to_s, e.message.to_s, e)
    end

    # Prints an exception without the frames of this file.
    def show(error)
      error.set_backtrace(error.backtrace.reject { |l| l.start_with?("cowaudit-harness:", "-e:") }) if error.backtrace
      $stderr.puts(error.full_message(highlight: false, order: :top))
    rescue StandardError
      nil # it is told in one line all the same
    end

    def fail_with(kind, message, error)
      at = error && error.backtrace_locations.to_a.map { |l| "#{l.path}:#{l.lineno}" }
                         .find { |l| !l.start_with?("cowaudit-harness:", "-e:", "<internal:") }
      say("error", { "class" => kind, "message" => message }.merge(at ? { "at" => at } : {}))
      exit!(1)
    end

    def load_application(args)
      if args["app"]
        run_file(args["app"], args.fetch("source"))
      else
        name = args["scenario"]
        kind = (CowauditScenarios::ALL[name] || CowauditScenarios::NEIGHBOURS[name]) or raise ArgumentError, "there is no scenario #{name} for Ruby"
        @scenario = kind.new(args.reject { |key, _| key == "scenario" }.transform_values { |v| Integer(v) })
      end
      say("loaded")
    end

    # As load would: own local variables, __FILE__, require_relative. The file that is found under the path here is
    # loaded where it is the same; else, in another root or not to be read by this user, its text is.
    def run_file(path, source)
      same = begin
        File.binread(path) == source.b
      rescue SystemCallError
        false
      end
      return Kernel.load(path) if same
      return RubyVM::InstructionSequence.compile(source, path, path, 1).eval if defined?(RubyVM::InstructionSequence)

      eval(source, TOPLEVEL_BINDING.dup, path, 1) # rubocop:disable Security/Eval
    end

    def preload(args)
      eval(args.fetch("source"), TOPLEVEL_BINDING.dup, args.fetch("label", "--preload"), 1) # rubocop:disable Security/Eval
      say("preloaded")
    end

    # An event of the user's, which the workers inherit.
    def define(args)
      source = "proc do #{args.fetch("source")}\nend"
      (@defined ||= {})[args.fetch("name")] = eval(source, TOPLEVEL_BINDING.dup, "--event", 1) # rubocop:disable Security/Eval
      say("defined")
    end

    # After the last collection of the parent, which stays the last one.
    def prepare
      GC.disable
      @scenario.prepare
      say("prepared")
    end

    # An event in the parent, which answers as worker 0.
    def parent_event(args)
      name = args.fetch("name")
      what = @scenario.parent_events[name] or raise ArgumentError, "there is no event #{name} in the parent"
      event(name, 0, what)
    end

    def settle(args)
      least = args["until"] == "quiet" ? nil : Integer(args.fetch("collections"))
      limit = least || Integer(args.fetch("limit"))
      done = quiet = 0
      before = nil
      while done < limit && (least || quiet < QUIET_RUNS)
        GC.start(full_mark: true, immediate_sweep: true)
        done += 1
        now = QUIET.map { |k| GC.stat(k) }
        quiet = now == before ? quiet + 1 : 0
        before = now
      end
      say("settled", "collections" => done, "quiet" => quiet >= QUIET_RUNS ? 1 : 0)
    end

    def warm_up
      Process.warmup
      say("warmed")
    end

    def fork_workers(args)
      unless Process.respond_to?(:fork)
        raise NotImplementedError, "this Ruby cannot fork: Process.fork is not there"
      end

      know_events
      @writers = []
      @pids = []
      Integer(args.fetch("workers")).times do |i|
        orders, writer = IO.pipe
        @writers << writer
        pid = Process.fork do
          @writers.each(&:close)
          serve(orders, i + 1)
        end
        raise "fork gave no child" unless pid

        orders.close
        @pids << pid
        say("worker", "number" => i + 1, "pid" => pid, "orders" => writer.fileno)
      end
      say("ready")
    end

    def serve(orders, number)
      GC.disable # GC.start works all the same
      buffer = String.new(capacity: ORDER_BYTES)
      loop do
        begin
          orders.readpartial(ORDER_BYTES, buffer)
        rescue EOFError
          exit!(0)
        end
        name, what = @events[buffer]
        if name == "teardown" then return tear_down(orders, buffer, number)
        elsif name then event(name, number, what)
        elsif buffer == "quit\n" then exit!(0)
        else fail_with("Unknown", "order #{buffer.chomp} is not known", nil)
        end
      end
    rescue Exception => e # rubocop:disable Lint/RescueException
      raise if @leaving

      show(e)
      fail_with(e.class.name.to_s, e.message.to_s, e)
    end

    def collect
      GC.start(full_mark: true, immediate_sweep: true)
    end

    # The orders that a worker knows, made before the fork: looking one up writes to nothing.
    def know_events
      count_what
      gc = -> { collect }
      all = { "null" => -> {}, "first_major_gc" => gc, "second_major_gc" => gc, "teardown" => nil }.merge(@scenario.events, @defined || {})
      @events = all.map { |name, what| ["event name=#{name}\n", [name, what]] }.to_h
    end

    def count_what
      @stats ||= (STATS & GC.stat.keys).map { |key| [" #{key}=", key] }
    end

    # The exit handlers run, newest first, then the finalizers, newest first too (gc.c, force_chain_object), of which
    # say_last's was defined before all others: it tells that all is done, and waits for what comes after.
    def tear_down(orders, buffer, number)
      @leaving = [orders, buffer, number, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)]
      exit(0)
    end

    def say_last
      @last = Object.new
      ObjectSpace.define_finalizer(@last, method(:torn_down))
    end

    def torn_down(_id)
      return unless @leaving

      orders, buffer, number, start = @leaving
      done("teardown", number, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start)
      orders.readpartial(ORDER_BYTES, buffer)
    ensure
      exit!(0) if @leaving
    end

    def event(name, number, what)
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      what.call
      done(name, number, Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start)
    end

    def done(name, number, took)
      count_what
      line = +"done event="
      line << name << " worker=" << number.to_s << " duration_ns=" << took.to_s
      @stats.each { |text, key| line << text << GC.stat(key).to_s }
      @metrics&.each { |key, value| line << " metric_" << key << "=" << value.to_s }
      @metrics = nil
      send_line(line << "\n")
    end
  end
end
