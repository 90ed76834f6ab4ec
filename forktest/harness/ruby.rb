# frozen_string_literal: true

# The Ruby harness of cowaudit forktest: Ruby 2.7 and later, nothing but the core library. It comes in over standard
# input, which is a socket, and speaks the line protocol of docs/protocol.md on it.
#
# It must disturb what it measures as little as it can: while a process waits for an order it blocks in read(2); a worker
# reads its orders into one buffer that it keeps, and its collector runs when it is told to and never else.
module CowauditHarness
  EVENTS = %w[null first_major_gc second_major_gc].freeze
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
      take_over_stdin
      say("hello", "protocol" => 1, "runtime" => "ruby", "version" => RUBY_DESCRIPTION,
                   "orders" => (Process.respond_to?(:warmup) ? "load,preload,settle,warmup,prepare,fork" : "load,preload,settle,prepare,fork"),
                   "events" => EVENTS.join(","))
      while (line = @in.gets("\n"))
        word, args = parse(line)
        case word
        when "load" then guard { load_application(args) }
        when "preload" then guard { preload(args) }
        when "settle" then guard { settle(args) }
        when "warmup" then guard { warm_up }
        when "prepare" then guard { prepare }
        when "fork" then guard { fork_workers(args) }
        when "quit" then break
        else fail_with("Unknown", "order #{word} is not known", nil)
        end
      end
      @writers.to_a.each(&:close)
      @pids.to_a.each { |pid| Process.wait(pid) rescue nil }
      exit!(0)
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
      elsif %w[callcache-cold callcache-warm].include?(args["scenario"])
        @scenario = args["scenario"]
        callcache(Integer(args.fetch("methods")), Integer(args.fetch("call_sites")))
      else
        raise ArgumentError, "there is no scenario #{args["scenario"]} for Ruby"
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
      eval(args.fetch("source"), TOPLEVEL_BINDING.dup, "--preload", 1) # rubocop:disable Security/Eval
      say("preloaded")
    end

    # Methods with call sites that were never called: the code of a large application, most of which never runs. What the
    # call sites call is defined for callcache-warm, which calls each once.
    def callcache(methods, call_sites)
      body = (0...call_sites).map { |i| "o.c#{i}" }.join(";")
      if @scenario == "callcache-warm"
        @target = Class.new { (0...call_sites).each { |i| class_eval("def c#{i}; end", "callcache", 1) } }.new
      end
      @spaces = (0...methods).each_slice(200).map do |numbers|
        space = Object.const_set("CallcacheCold#{numbers.first}", Module.new)
        of = @target ? "self." : ""
        space.module_eval(numbers.map { |n| "def #{of}m#{n}(o);#{body};end\n" }.join, "callcache-cold", 1)
        space
      end
    end

    # After the last collection of the parent, which must stay the last one.
    def prepare
      GC.disable
      call_all if @scenario == "callcache-warm"
      say("prepared")
    end

    def call_all
      @spaces.each { |space| space.singleton_methods(false).each { |name| space.public_send(name, @target) } }
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

      @stats = (STATS & GC.stat.keys).map { |key| [" #{key}=", key] }
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
        case buffer
        when "event name=null\n" then event("null", number) {}
        when "event name=first_major_gc\n" then event("first_major_gc", number) { collect }
        when "event name=second_major_gc\n" then event("second_major_gc", number) { collect }
        when "quit\n" then exit!(0)
        else fail_with("Unknown", "order #{buffer.chomp} is not known", nil)
        end
      end
    rescue Exception => e # rubocop:disable Lint/RescueException
      show(e)
      fail_with(e.class.name.to_s, e.message.to_s, e)
    end

    def collect
      GC.start(full_mark: true, immediate_sweep: true)
    end

    def event(name, number)
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      yield
      took = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start
      line = +"done event="
      line << name << " worker=" << number.to_s << " duration_ns=" << took.to_s
      @stats.each { |text, key| line << text << GC.stat(key).to_s }
      send_line(line << "\n")
    end
  end
end

CowauditHarness.main
