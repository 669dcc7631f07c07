# SPDX-License-Identifier: PostgreSQL
#
# A headless Chromium, driven by chromedriver over its WebDriver protocol (W3C): what a person does with a
# page. Elements are found by CSS.
package SasBrowser;
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;
use MIME::Base64 qw(decode_base64);
use SasTest;

my $http = HTTP::Tiny->new(timeout => 120);
my $element = 'element-6066-11e4-a52e-4f735466cecf';

# open_browser(dir): a browser that keeps its log and its files in dir
sub open_browser
{
	my ($dir) = @_;
	my $port = SasTest::free_port();
	local $ENV{HOME} = $dir;
	my $me = bless { program => SasTest::start_program("$dir/driver.log", 'chromedriver', "--port=$port"), url => "http://127.0.0.1:$port" };
	SasTest::wait_until(sub { $http->get("$me->{url}/status")->{success} }, 60) or die 'chromedriver does not answer';
	my $session = $me->call(POST => '/session', { capabilities => { alwaysMatch => {
		browserName => 'chrome', 'goog:loggingPrefs' => { browser => 'ALL' },
		'goog:chromeOptions' => { args => [ qw(--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking --hide-scrollbars), "--user-data-dir=$dir/profile" ] } } } });
	$me->{url} .= "/session/$session->{sessionId}";
	return $me;
}

# call(method, path, body): the value of the answer; dies of what the driver refuses
sub call
{
	my ($me, $method, $path, $body) = @_;
	my $answer = $http->request($method, $me->{url} . $path, { $body ? (content => encode_json($body), headers => { 'content-type' => 'application/json' }) : () });
	my $value = eval { decode_json($answer->{content})->{value} };
	die "$method $path: " . ($answer->{content} // '') . "\n" unless $answer->{success};
	return $value;
}

sub go { my ($me, $url) = @_; return $me->call(POST => '/url', { url => $url }) }
sub url { return $_[0]->call(GET => '/url') }
sub run { my ($me, $script, @args) = @_; return $me->call(POST => '/execute/sync', { script => $script, args => \@args }) }
sub find { my ($me, $css) = @_; return $me->call(POST => '/element', { using => 'css selector', value => $css })->{$element} }
sub click { my ($me, $css) = @_; return $me->call(POST => '/element/' . $me->find($css) . '/click', {}) }
sub type { my ($me, $css, $text) = @_; return $me->call(POST => '/element/' . $me->find($css) . '/value', { text => $text }) }
sub text { return $_[0]->run('return document.body.innerText') }

# press_keys(text): pressed wherever the focus is
sub press_keys
{
	my ($me, $text) = @_;
	my @acts = map { ({ type => 'keyDown', value => $_ }, { type => 'keyUp', value => $_ }) } split(//, $text);
	return $me->call(POST => '/actions', { actions => [ { type => 'key', id => 'keys', actions => \@acts } ] });
}

# size, scheme: how wide the window is; light or dark
sub size { my ($me, $w, $h) = @_; return $me->call(POST => '/goog/cdp/execute', { cmd => 'Emulation.setDeviceMetricsOverride', params => { width => $w, height => $h, deviceScaleFactor => 1, mobile => JSON::PP::false } }) }
sub scheme { my ($me, $word) = @_; return $me->call(POST => '/goog/cdp/execute', { cmd => 'Emulation.setEmulatedMedia', params => { features => [ { name => 'prefers-color-scheme', value => $word } ] } }) }
sub complaints { return map { $_->{message} } @{ $_[0]->call(POST => '/se/log', { type => 'browser' }) } }

# picture(file): of what the window shows, as PNG
sub picture
{
	my ($me, $file) = @_;
	open(my $out, '>:raw', $file) or die "$file: $!";
	print $out decode_base64($me->call(GET => '/screenshot'));
	close($out) or die "$file: $!";
	return;
}

sub close_browser
{
	my ($me) = @_;
	$me->call(DELETE => '');
	SasTest::stop_program($me->{program});
	return;
}

1;
