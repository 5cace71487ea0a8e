// sdk.hpp - includes all layers of the SDK. Headers in aici/detail are internal.
//
//   controller.hpp             the controller interface, and the results of its callbacks
//   host.hpp                   the host's services, and its reports; text.hpp: the lines of an argument
//   vocabulary.hpp             the tokens; token_set.hpp: sets of them; turns.hpp: the messages of a chat
//   recognizer.hpp             constraints on text as a stack of states; bias.hpp: the tokens that they allow
//   functional.hpp             constraints as pure functions; signature.hpp: a shortcut that makes them fast
//   string_recognizer.hpp      constraints as lists of strings; choices.hpp: one of several texts
//   warmable.hpp               tables that are filled ahead of the requests that need them
//   recognizer_controller.hpp  makes a controller from any of these; constraint.hpp: a part of a controller;
//                              any_constraint.hpp: a constraint that is chosen at run time
//   tokenwise.hpp              the original controller interface
#pragma once

#include "aici/any_constraint.hpp"
#include "aici/bias.hpp"
#include "aici/choices.hpp"
#include "aici/constraint.hpp"
#include "aici/controller.hpp"
#include "aici/functional.hpp"
#include "aici/host.hpp"
#include "aici/recognizer.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/signature.hpp"
#include "aici/string_recognizer.hpp"
#include "aici/text.hpp"
#include "aici/token_set.hpp"
#include "aici/tokenwise.hpp"
#include "aici/turns.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"
#include "aici/warmable.hpp"
